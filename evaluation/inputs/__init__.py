"""Read submissions and references."""
