"""Import checks of a saved container image."""
