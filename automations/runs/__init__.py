"""Runs: recording, skipping, cancelling, describing and reporting them."""
