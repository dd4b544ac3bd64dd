"""The settings of a phase, and the platform's rankings compared with an edition's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata

from evaluation.editions.document import (
    Borda,
    Lexicographic,
    MeanCaseRank,
    MeanRank,
    MedianRank,
    MetricProfile,
    Scheme,
    WinRank,
)
from evaluation.editions.profile import load_profile
from evaluation.ranking.rank import rank_by_scheme
from hecktor.phase.settings import PhaseSettings, find_platform_ranking

A, B, C = "a", "b", "c"


def make_settings(edition: str, task: str | None = None) -> PhaseSettings:
    return PhaseSettings.from_task(load_profile(edition).find_task(task))


def test_settings_of_the_nested_borda_count() -> None:
    """Score and columns count by their mean rank; limits are 600 s, 8 GiB, and the 32 GB of a T4."""
    settings = make_settings("hecktor2025", "segmentation")
    assert (settings.score_title, settings.score_jsonpath) == ("GTVp mean DSC", "aggregates.gtvp_dsc_mean.value")
    choices = (settings.scoring_method_choice, settings.score_default_sort, settings.display_all_metrics)
    assert choices == ("avg", "desc", False)
    assert next(column.model_dump() for column in settings.extra_results_columns) == {
        "title": "GTVn aggregated DSC",
        "path": "aggregates.gtvn_dsc_agg.value",
        "error_path": "aggregates.gtvn_dsc_agg.ci95_half_width",
        "order": "desc",
        "exclude_from_ranking": False,
    }
    assert [column.exclude_from_ranking for column in settings.extra_results_columns] == [False, False]
    assert (settings.algorithm_time_limit, settings.evaluation_time_limit) == (600, 3600)
    assert (settings.evaluation_requires_memory_gb, settings.algorithm_maximum_settable_memory_gb) == (8, 32)
    assert settings.paths == tuple(
        f"aggregates.{name}.{figure}"
        for name in ("gtvp_dsc_mean", "gtvn_dsc_agg", "gtvn_f1_agg")
        for figure in ("value", "ci95_half_width")
    )


def test_columns_next_to_a_single_score_do_not_rank() -> None:
    """Metrics that do not decide, or only break ties, must not leave a result unranked."""
    newest, hpv = make_settings("hecktor2026"), make_settings("hecktor2025", "hpv")
    assert (newest.score_jsonpath, newest.scoring_method_choice) == ("aggregates.score.value", "abs")
    assert len(newest.extra_results_columns) == 8
    assert all(column.exclude_from_ranking for column in (*newest.extra_results_columns, *hpv.extra_results_columns))
    assert [column.title for column in hpv.extra_results_columns] == ["Specificity", "Sensitivity"]


def test_a_metric_in_mm_is_sorted_from_the_lowest() -> None:
    """HECKTOR 2021 ranks by mean DSC, and by median HD95, where less is better."""
    column = make_settings("hecktor2021", "segmentation").extra_results_columns[0]
    assert (column.path, column.order) == ("aggregates.gtvp_hd95_median_mm.value", "asc")


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        (A, ("abs", (A,), True)),
        (Borda(parts=(A, B)), ("avg", (A, B), True)),
        (Borda(parts=(A, B), weights=(2.0, 2.0)), ("avg", (A, B), True)),
        (Borda(parts=(A, B), weights=(1.0, 2.0)), ("avg", (A, B), False)),
        (Borda(parts=(A, Borda(parts=(B, C)))), ("avg", (A, B, C), False)),
        (Borda(parts=(A, A, B)), ("avg", (A, B), False)),
        (MeanRank(parts=(A, B)), ("avg", (A, B), True)),
        (MedianRank(parts=(A, B, C)), ("med", (A, B, C), True)),
        (Lexicographic(parts=(Borda(parts=(A, B)), C)), ("avg", (A, B), False)),
        (Lexicographic(parts=(A,)), ("abs", (A,), True)),
        (MeanCaseRank(metric=A), ("abs", (A,), False)),
        (Borda(parts=(A, WinRank(metric=B))), ("avg", (A, B), False)),
    ],
)
def test_the_nearest_ranking_of_the_platform(scheme: Scheme, expected: object) -> None:
    assert find_platform_ranking(scheme) == expected


VALUES = st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=2, max_size=6)


@given(values=VALUES, make=st.sampled_from([Borda, MeanRank, MedianRank]))
def test_an_exact_ranking_gives_the_order_of_the_scheme(values: list[tuple[int, ...]], make: type[Borda]) -> None:
    """Oracle: the platform's mean or median of each result's ranks, with the least rank for ties."""
    scheme = make(parts=(A, B, C))
    columns = dict(zip((A, B, C), np.array(values, dtype=float).T, strict=True))
    profiles = {name: MetricProfile(name, higher_is_better=True) for name in columns}
    method, metrics, is_exact = find_platform_ranking(scheme)
    assert is_exact
    ranks = [rankdata(-columns[name], method="min") for name in metrics]
    positions = {"avg": np.mean, "med": np.median}[method](ranks, axis=0)
    np.testing.assert_array_equal(
        rankdata(positions, method="min"), rank_by_scheme(columns, profiles, scheme, "min").ranks
    )
