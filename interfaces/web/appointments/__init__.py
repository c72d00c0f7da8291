"""Pages for people: the appointments of a conversation, and all that are coming."""
