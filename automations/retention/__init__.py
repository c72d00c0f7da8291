"""Walks of maintenance: retention of runs and of scheduled messages, and new time-zone data."""
