"""The HTTP API of automations, scheduled messages and routines."""
