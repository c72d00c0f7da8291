"""`python -m tests.soak`: a running server under load, faults and abusive clients; every invariant is checked."""
