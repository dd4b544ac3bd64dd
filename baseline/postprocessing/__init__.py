"""Search for postprocessing rules (`hecktor train postprocess`): lesions, score, search, application."""
