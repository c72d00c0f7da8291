"""Open, archive and delete sessions, and read their histories as people see them."""
