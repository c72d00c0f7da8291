"""The spans of turns, runs and deliveries."""
