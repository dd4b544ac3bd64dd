"""Trainers of nnU-Net with another loss or augmentation, for `hecktor train plan --trainer` or nnU-Net itself."""
