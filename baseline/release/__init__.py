"""Read, check and prepare the released data."""
