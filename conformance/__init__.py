"""Peers' own test suites, run with our classes swapped in."""
