"""AgileRL's vector API over a pool."""
