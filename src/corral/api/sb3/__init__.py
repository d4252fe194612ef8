"""Stable-Baselines3's vector API over a pool."""
