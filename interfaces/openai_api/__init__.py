"""The protocol door `openai`: agents as models of an OpenAI-compatible API."""
