"""Spaces -> fields in a block: pure arithmetic, no operating system."""
