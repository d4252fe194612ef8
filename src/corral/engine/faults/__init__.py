"""Faults as values: what they say, and the error that carries them."""
