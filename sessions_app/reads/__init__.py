"""Reads of sessions, turns and agents: what a user may see of them."""
