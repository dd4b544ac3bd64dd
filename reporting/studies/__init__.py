"""Analyses that challenge papers report beside the ranking, one command each: `hecktor study NAME`."""
