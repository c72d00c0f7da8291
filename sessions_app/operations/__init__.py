"""Checks and figures for operators."""
