"""Pages for people: the conversations, their sessions, agents and accounts."""
