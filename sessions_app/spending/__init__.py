"""Spending: caps on tokens and US dollars (`caps.py`) and the accounts that hold spending within them."""
