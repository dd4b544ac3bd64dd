"""Features of lesions, each module one family: shape, uptake, density, places, dose."""
