"""Runs environments in parallel; needs numpy, gymnasium and cloudpickle only."""
