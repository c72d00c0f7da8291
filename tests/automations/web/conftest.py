"""A visitor of the pages, with processes that serve the tests of a module."""

from tests.browser import beat, browser, served, visitor

__all__ = ["beat", "browser", "served", "visitor"]
