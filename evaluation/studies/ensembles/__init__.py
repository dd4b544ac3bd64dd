"""Ensembles of submissions."""
