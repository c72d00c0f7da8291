"""Retention: the rules by which old rows are removed, and the rounds that remove them."""
