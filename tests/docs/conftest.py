"""A user of the API, and its schema."""

from tests.api.conftest import ada, nobody, schema

__all__ = ["ada", "nobody", "schema"]
