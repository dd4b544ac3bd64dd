"""Experiments on one prepared data set: the list of plans, and their comparison."""
