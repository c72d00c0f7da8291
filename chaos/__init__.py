"""Proof from outside: a real system under load and faults, what its clients saw, and a checker apart."""
