"""Questions of plans and of calls that need a yes: ask, answer, read."""
