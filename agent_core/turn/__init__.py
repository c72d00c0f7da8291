"""One turn: model requests, tool calls, limits and endings. It stores everything through ports (``control.py``)."""
