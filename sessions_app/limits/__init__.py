"""What one user may have and do: requests in a time, stored rows and bytes, running turns, and the limits of a turn."""
