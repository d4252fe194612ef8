"""Tools around environments: benchmark, doctor, and what to test with."""
