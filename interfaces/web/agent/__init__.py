"""The page of an agent: one module for each of its sections."""
