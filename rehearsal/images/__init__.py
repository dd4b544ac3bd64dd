"""Checks of container images as at an upload."""
