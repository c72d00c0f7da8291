"""Deliveries: sending answers to channels outside the server."""
