"""Seconds and memory of the algorithm and the evaluation; run by `scripts/bench`."""
