"""Routines: editing them, HEARTBEAT.md and its repair, and what heartbeats register."""
