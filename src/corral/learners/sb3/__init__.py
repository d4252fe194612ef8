"""Stable-Baselines3's PPO as a learner like our own."""
