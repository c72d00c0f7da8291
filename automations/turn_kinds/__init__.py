"""The kinds of scheduled turns: automation, legacy job, heartbeat, isolated routine, dream, scheduled message."""
