"""`manage.py tour`: demonstrates the main features on a running server, through the public API only."""
