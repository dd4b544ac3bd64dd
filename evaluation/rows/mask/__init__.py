"""Masks: one row for each pair of a reference and a prediction, and the metrics of the rows."""
