"""The training report: cross-validated metrics, comparators and the worst cases."""
