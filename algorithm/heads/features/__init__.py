"""Features of lesions: shape, uptake, density, location and dose."""
