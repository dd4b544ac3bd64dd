"""A segmentation on its own grid, and the PET threshold that makes one without a network."""
