"""Make and try the files of a challenge's phase on the platform."""
