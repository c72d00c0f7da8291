"""Channels send messages out of the server. Each is a module here or in a plugin; `base` has what they share."""
