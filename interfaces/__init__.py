"""How people, programs and operators come in: each package reads input, calls one verb or read, and answers."""
