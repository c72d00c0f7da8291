"""Import the jobs of a nanobot store."""
