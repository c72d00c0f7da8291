"""Requests to language models and their replies, and the models over HTTP."""
