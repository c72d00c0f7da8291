"""Gates: checks that run in a scheduled turn before the model, and may find that there is nothing to do."""
