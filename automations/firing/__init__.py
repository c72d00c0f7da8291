"""Firing: due slots and messages become runs and turns. The steps: claim, decide, insert, announce."""
