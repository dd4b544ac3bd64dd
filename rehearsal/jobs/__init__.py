"""Cases as jobs of the platform, with their outputs checked."""
