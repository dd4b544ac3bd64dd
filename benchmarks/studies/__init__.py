"""Studies whose figures stand in the docs."""
