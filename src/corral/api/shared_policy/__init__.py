"""One policy for all agents: every agent of every env is a row."""
