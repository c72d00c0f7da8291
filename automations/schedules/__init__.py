"""Schedules and their slots, time zones, active hours, and schedules in words."""
