"""The turn, from the message to the commit: receive, claim, prepare, run, commit."""
