"""For operators: checks, health endpoints, metrics, status."""
