"""Decisions on lesions: rules of a model package that relabel or drop connected components of a mask."""
