"""Passwords that are checked quickly."""

from tests.admin.conftest import fast_passwords

__all__ = ["fast_passwords"]
