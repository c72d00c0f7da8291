"""Resources of a session: sessions, turns, streams, deliveries, executions, mailbox."""
