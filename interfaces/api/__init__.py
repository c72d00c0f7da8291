"""The HTTP door of agents, sessions and turns: read input, call one verb, answer."""
