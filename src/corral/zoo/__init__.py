"""Example environments; they import nothing of the rest of the package."""
