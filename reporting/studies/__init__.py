"""Analyses of challenge papers besides the ranking; `hecktor study NAME` runs one of them."""
