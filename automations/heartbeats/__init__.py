"""Heartbeats: when they may run, their briefing, and reminders without a model."""
