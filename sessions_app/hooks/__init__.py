"""Hooks: other systems post messages into a session."""
