"""Editing automations: validation, clocks, system jobs, explanations, and their sessions."""
