"""Familiar APIs over a pool: translation, and nothing else."""
