"""Measure seconds and memory of the algorithm and the evaluation; `scripts/bench` runs this package."""
