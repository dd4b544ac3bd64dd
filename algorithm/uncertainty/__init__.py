"""Uncertainty of an answer, from the disagreement of passes."""
