"""The engine of one turn: model, tools, limits. It takes data and yields events and a result.

Nothing here knows Django, Celery or a database; what a turn needs from them comes in through
``ports.TurnPorts``.
"""
