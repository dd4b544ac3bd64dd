"""What the algorithm and the evaluation cost in seconds and memory; run by `scripts/bench`."""
