"""Models that compete to become a head."""
