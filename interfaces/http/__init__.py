"""HTTP: connections, request limits, sign-in, error responses, the OpenAPI schema."""
