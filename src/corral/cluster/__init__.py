"""More than one machine: sites on a Ray cluster."""
