"""The planner: it makes a plan for a request, executes it step by step, asks questions, and resumes.

Like ``turn/run.py`` it works on data and stores its state through ports.
"""
