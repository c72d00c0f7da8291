"""Helpers for texts: phrases that people use, fences around data, redaction of secrets."""
