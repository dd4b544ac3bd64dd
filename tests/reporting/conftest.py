"""Fixtures that the tests of evaluation and of reporting share."""

from tests.evaluation.conftest import blank, compare_in_process, grid, phase_of, rules, valid_metrics

__all__ = ["blank", "compare_in_process", "grid", "phase_of", "rules", "valid_metrics"]
