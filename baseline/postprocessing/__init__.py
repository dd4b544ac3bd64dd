"""Minimum volumes of lesions (`hecktor train postprocess`): lesions, score, choice, application."""
