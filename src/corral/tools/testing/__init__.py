"""To test with: see `corral.testing`."""
