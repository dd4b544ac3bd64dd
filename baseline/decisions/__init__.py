"""Search for the rules on lesions (`hecktor train decide`): tables, score, search, cross-fitting."""
