"""The HTTP API of agents, sessions, turns and automations: read input, call one verb, answer."""
