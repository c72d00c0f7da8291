"""The planner: turns a request into a plan, executes it step by step, asks when it must, resumes.

Pure code over data: what must survive goes out through ports, as in ``orchestrator.py``.
"""
