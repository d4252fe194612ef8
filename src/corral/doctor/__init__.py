"""What is wrong with an environment, and why."""
