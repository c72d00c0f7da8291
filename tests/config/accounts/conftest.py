"""A visitor of the pages, with processes that serve the tests of a module."""

from tests.browser import browser, served, visitor

__all__ = ["browser", "served", "visitor"]
