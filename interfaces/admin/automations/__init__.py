"""The admin pages of automations, scheduled messages and their runs."""
