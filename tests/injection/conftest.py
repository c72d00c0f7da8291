"""The processes and the browser of these tests."""

from tests.browser import browser, served, visitor

__all__ = ["browser", "served", "visitor"]
