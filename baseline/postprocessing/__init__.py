"""Rules on lesions (`hecktor train postprocess`): lesions, score, choice, application."""
