"""The HTTP door of automations: read input, call one verb, answer."""
