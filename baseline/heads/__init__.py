"""Fit, select and cross-validate the prediction heads."""
