"""`manage.py tour`: the main job on a running system, through the public API only."""
