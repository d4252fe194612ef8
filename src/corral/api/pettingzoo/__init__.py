"""Environments with several agents, by agent and by group."""
