"""Races between vector environments, measured side by side.

`python -m corral.bench` runs a short one; `measure` is how all of them are timed.
"""
