"""Errors of the API: codes, statuses, bodies and what they mean."""
