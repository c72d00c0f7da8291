"""Passwords that are checked quickly, and a visitor of the pages."""

from tests.admin.conftest import fast_passwords
from tests.browser import browser, served, visitor

__all__ = ["browser", "fast_passwords", "served", "visitor"]
