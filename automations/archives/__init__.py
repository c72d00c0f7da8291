"""Everything of a user as one archive, and its import."""
