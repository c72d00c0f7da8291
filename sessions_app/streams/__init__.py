"""Event streams: the hub of a web process and its subscriptions."""
