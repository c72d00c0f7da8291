"""Tools that every conversation may use: documents, the clock, live state."""
