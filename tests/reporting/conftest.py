"""Fixtures that the tests of evaluation and of reporting share."""

from tests.evaluation.conftest import blank, grid, in_this_process, phase_of, rules, valid_metrics

__all__ = ["blank", "grid", "in_this_process", "phase_of", "rules", "valid_metrics"]
