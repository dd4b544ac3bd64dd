"""Checks of a release's images."""
