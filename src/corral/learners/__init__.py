"""Learners: what is made of rollouts. torch is imported here and nowhere below."""
