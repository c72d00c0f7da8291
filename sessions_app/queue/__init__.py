"""The queue of a session: receive a message, enqueue a turn, cancel one, and the kinds of turns."""
