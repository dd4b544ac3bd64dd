"""Trainers of nnU-Net with a custom loss or augmentation, for `hecktor train plan --trainer` or nnU-Net itself."""
