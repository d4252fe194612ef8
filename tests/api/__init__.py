"""Faces, held against what they stand in for."""
