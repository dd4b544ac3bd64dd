"""Metrics as functions of masks, risks and classes."""
