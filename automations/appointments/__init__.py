"""Appointments: what is scheduled in a conversation or for a user, and what became of each slot. Reads only."""
