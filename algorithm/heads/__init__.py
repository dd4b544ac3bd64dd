"""Prediction heads: features of the mask and the patient, and the answers computed from them."""
