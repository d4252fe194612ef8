"""What is wrong with an environment, and why: see `corral.doctor`."""
