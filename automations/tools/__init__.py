"""Tools for automations, scheduled messages and routines."""
