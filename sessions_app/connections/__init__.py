"""Connections to model providers: stored, checked, handed to turns, and tested."""
