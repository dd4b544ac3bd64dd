"""The training report: cross-validated metrics, comparators, uncertainty and the worst cases."""
