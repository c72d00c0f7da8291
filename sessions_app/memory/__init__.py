"""What a session remembers: history, task state, preferences."""
