"""The OpenAI protocol: agents as models of an OpenAI-compatible API."""
