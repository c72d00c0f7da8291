"""Event streams: the hub of a process, which fills the subscriptions of its readers."""
