"""What runs beside the envs, the same under every executor."""
