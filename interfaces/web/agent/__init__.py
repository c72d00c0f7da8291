"""The page of an agent: its frame, and the sections."""
