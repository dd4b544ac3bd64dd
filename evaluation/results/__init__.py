"""Write and read metrics.json."""
