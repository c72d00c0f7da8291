"""The engine of one turn: model, tools, limits. It takes data, yields events and returns a result.

It does not import Django, Celery or a database driver. A turn reaches them through ``turn.ports.TurnPorts``.
"""
