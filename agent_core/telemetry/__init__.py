"""Traces of turns, by OpenTelemetry if it is switched on."""
