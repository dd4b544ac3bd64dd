"""Make and test the files of a challenge phase on the platform."""
