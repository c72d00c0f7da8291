"""The offline model: rules in place of a language model, for a first try and for tests."""
