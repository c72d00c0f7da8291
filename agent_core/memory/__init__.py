"""Task state: its parts, which facts are kept, and their sources."""
