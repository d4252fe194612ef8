"""The APIs over a pool, compared with the classes that they stand in for."""
