"""Ways out of the server. Each channel is one module here, or one of a plugin; `base` is what they share."""
