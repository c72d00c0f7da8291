"""API tokens: what they reach, how they are made and revoked, and tickets for event streams."""
