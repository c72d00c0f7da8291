"""The journal of a turn: each step with its intent and result, written under the turn's fence."""
