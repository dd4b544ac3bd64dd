"""Fit rules on lesions, and apply them to the out-of-fold masks (`hecktor train postprocess`)."""
