"""The Python API: score two masks, evaluate a submission, rank teams. Errors are those of the command line."""
