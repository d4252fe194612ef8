"""Gymnasium's vector API over a pool."""
