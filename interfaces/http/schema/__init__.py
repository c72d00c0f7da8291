"""The reference of the API: names, examples and error texts that complete the OpenAPI schema."""
