"""Segmentations on their own grid, and the PET threshold."""
