"""Fallbacks of four answers: a fault fails one answer, and no case ends without all of them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithm import answers
from algorithm.heads.values import HeadAnswer
from contract.images.volumes import read_volume
from tests.algorithm.combined.four_answers import (
    MASK,
    NODE,
    add_node,
    bug,
    has_nodes,
    make_n_head,
    predict_case,
    read_values,
    write_heads,
)
from tests.conftest import CaseFolder

# N0 goes with a written mask without GTVn


@pytest.mark.usefixtures("network_out_of_time")
@pytest.mark.parametrize("preferred", ["N0", "N2"])
def test_n0_is_given_exactly_without_gtvn(case: CaseFolder, package: Path, preferred: str) -> None:
    """With a node in the mask N0 is impossible, and three classes are equal for a head that prefers N0: the lowest is
    N1.
    """
    write_heads(package, n_stage=make_n_head(preferred))
    predict_case(case, package)
    assert (has_nodes(case), read_values(case)["n-stage"]) == (False, "N0")
    predict_case(add_node(case), package)
    assert (has_nodes(case), read_values(case)["n-stage"]) == (True, {"N0": "N1", "N2": "N2"}[preferred])


@pytest.mark.usefixtures("network_out_of_time")
@pytest.mark.parametrize(
    ("rule", "training", "expected", "by"),
    [("N0", "N0", "N2", "declaration"), (None, "N3", "N3", "training"), ("N1", "N3", "N1", "rule")],
)
def test_no_fallback_contradicts_the_mask(
    case: CaseFolder,
    package: Path,
    monkeypatch: pytest.MonkeyPatch,
    rule: str | None,
    training: str,
    expected: str,
    by: str,
) -> None:
    """Without the head, the first of rule, training and declaration counts that is not N0 where the mask has a node."""
    write_heads(package, n_stage=None, fallbacks={"n_stage": training})
    monkeypatch.setattr(answers, "derive_stage", lambda *_: rule)
    record = predict_case(add_node(case), package).record
    assert (read_values(case)["n-stage"], record.fallback_by["n_stage"]) == (expected, by)
    case.pet.array[NODE] = 1.0
    record = predict_case(case.write(), package).record
    assert (read_values(case)["n-stage"], "n_stage" in record.fallbacks) == ("N0", False)


# The order of the fallbacks


@pytest.mark.parametrize(
    ("rule", "fallbacks", "expected", "by"),
    [
        ("T4", {"t_stage": "T3"}, "T4", "rule"),
        ("T9", {"t_stage": "T3"}, "T3", "training"),
        (None, {"t_stage": "t3"}, "T2", "declaration"),
        (None, {}, "T2", "declaration"),
    ],
)
def test_the_first_possible_fallback_of_a_class(
    case: CaseFolder,
    package: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    rule: str | None,
    fallbacks: dict[str, Any],
    expected: str,
    by: str,
) -> None:
    write_heads(package, t_stage=None, fallbacks=fallbacks)
    monkeypatch.setattr(answers, "derive_stage", lambda *_: rule)
    record = predict_case(case, package).record
    assert read_values(case)["t-stage"] == expected
    assert (record.fallbacks, record.fallback_by) == (("t_stage",), {"t_stage": by})
    assert record.fallback_why["t_stage"].startswith("manifest.json: no head 't_stage'")
    assert f"*** FALLBACK *** t_stage: '{expected}' is written, from the {by} (manifest.json: no head" in caplog.text


@pytest.mark.usefixtures("network_out_of_time")
def test_the_rule_stages_the_mask(case: CaseFolder, package: Path) -> None:
    """On the grid of 3 mm the primary spans 8 voxels along each axis: at least 21 mm and below 37 mm (T2). The node
    spans 8, 7 and 4: sqrt(21^2 + 18^2 + 9^2) = 29 mm at most, one node up to 30 mm (N1).
    """
    write_heads(package, t_stage=None, n_stage=None, fallbacks={"t_stage": "T3", "n_stage": "N3"})
    record = predict_case(add_node(case), package).record
    assert (read_values(case)["t-stage"], read_values(case)["n-stage"]) == ("T2", "N1")
    assert record.fallback_by == {"segmentation": "PET threshold", "t_stage": "rule", "n_stage": "rule"}


@pytest.mark.parametrize(
    ("fallbacks", "expected", "by"),
    [
        ({"rfs": 812}, 812, "training"),
        ({"rfs": -1.0}, 1000.0, "declaration"),
        ({"rfs": "812"}, 1000.0, "declaration"),
        ({"rfs": True}, 1000.0, "declaration"),
    ],
)
def test_the_first_possible_fallback_of_a_time(
    case: CaseFolder, package: Path, fallbacks: Any, expected: float, by: str
) -> None:
    write_heads(package, rfs=None, fallbacks=fallbacks)
    record = predict_case(case, package).record
    assert (read_values(case)["rfs"], record.fallback_by) == (expected, {"rfs": by})


# A fault fails one answer


@pytest.mark.usefixtures("network_out_of_time")
@pytest.mark.parametrize(("failing", "fault"), [("t_stage", "bug"), ("n_stage", "NaN"), ("rfs", "no memory")])
def test_a_fault_in_one_head_fails_only_its_answer(
    case: CaseFolder, package: Path, monkeypatch: pytest.MonkeyPatch, failing: str, fault: str
) -> None:
    """A lack of memory counts only when it happens twice. The other answers are the same as without the fault."""
    add_node(case)
    predict_case(case, package)
    sound, real = read_values(case), answers.compute_head_answer

    def faulty(declared: Any, *arguments: Any, **options: Any) -> Any:
        if declared.name != failing:
            return real(declared, *arguments, **options)
        if fault == "NaN":
            return HeadAnswer(math.nan, math.nan)
        raise MemoryError if fault == "no memory" else ZeroDivisionError("a bug")

    monkeypatch.setattr(answers, "compute_head_answer", faulty)
    record = predict_case(case, package).record
    key = failing.replace("_", "-")
    written = read_values(case)
    assert {name: value for name, value in written.items() if name != key} == {
        name: value for name, value in sound.items() if name != key
    }
    assert record.fallbacks == ("segmentation", failing)
    assert record.answers[failing] == written[key]


def test_a_missing_feature_takes_its_training_median(
    case: CaseFolder, package: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without an age, the fill value 1 has a weight of 0.1, with an intercept of 0.5: 1000 (1 - e^-k) / k days with k =
    e^0.6.
    """
    case.ehr = {}
    predict_case(case.write(), package)
    k = math.exp(0.6)
    assert read_values(case)["rfs"] == pytest.approx(1000 * (1 - math.exp(-k)) / k)
    assert "rfs: age_years is missing; instead its training median 1 is used" in caplog.text


def test_a_late_lack_of_memory_leaves_the_answers_before(
    case: CaseFolder, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers of the first pass, after the threshold's, need no fallback."""
    real, calls = answers.measure_image_features, []

    def run_short_of_memory(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise MemoryError
        return real(*arguments, **options)

    monkeypatch.setattr(answers, "measure_image_features", run_short_of_memory)
    record = predict_case(case, package).record
    assert (record.fallbacks, record.passes_done, len(calls)) == ((), 1, 3)


def test_a_mask_that_cannot_be_restored_is_empty(
    case: CaseFolder, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heads still see the segmentation; N0 goes with the empty mask that is written. A mask of another shape is not
    written either.
    """
    monkeypatch.setattr("algorithm.masks.segmentation.grids.restore_labels", bug)
    record = predict_case(add_node(case), package).record
    assert not read_volume(case.output / MASK).array.any()
    assert read_values(case)["n-stage"] == "N0"
    assert record.fallback_by == {"segmentation": "empty mask"}
    assert record.fallback_why == {"segmentation": "the mask cannot be restored (ZeroDivisionError)"}

    monkeypatch.setattr("algorithm.masks.segmentation.grids.restore_labels", lambda *_: np.ones((2, 3, 4), np.uint8))
    assert predict_case(case, package).record.fallback_by == {"segmentation": "empty mask"}
    assert not read_volume(case.output / MASK).array.any()


@pytest.mark.parametrize("where", ["pipeline.localise", "segmenter.segment_by_threshold"])
def test_a_bug_before_the_first_answer_leaves_an_empty_mask(
    case: CaseFolder, package: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(f"algorithm.{where}", bug)
    monkeypatch.setattr("algorithm.segmenter.segment_by_threshold", bug)
    monkeypatch.setattr("algorithm.network.preprocessing.normalise", bug)
    record = predict_case(case, package).record
    assert read_values(case) == {"t-stage": "T3", "n-stage": "N0", "rfs": 812.0}
    assert record.fallback_by == {"segmentation": "empty mask", "t_stage": "training", "rfs": "training"}
    assert set(record.fallback_why.values()) == {answers.NOT_SEGMENTED, answers.NOT_MEASURED}
    assert str(record.notices[-1]) == "answers: ZeroDivisionError; an empty mask and fallbacks are written"
