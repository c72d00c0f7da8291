"""The process that runs turns: queues, locks, heartbeat and sweeps."""
