"""A superuser, and passwords that are checked quickly."""

from tests.admin.conftest import boss, fast_passwords

__all__ = ["boss", "fast_passwords"]
