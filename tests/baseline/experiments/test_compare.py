"""Two plans against each other by the evaluation's metrics, with figures that follow by hand."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from baseline.cache import cache
from baseline.experiments.answers import experiment_of
from baseline.experiments.compare import common_patients, compare, searched_rules
from baseline.work import WorkFolders
from contract.errors import HecktorError
from contract.files import read_json, write_json
from tests.baseline.experiments.conftest import HPV, answers, write_heads
from tests.baseline.postprocessing.patients import record_json


def test_masks_and_heads_of_two_plans(work: WorkFolders) -> None:
    """GTVp: `plan` has DSC 32/64 in one of four patients, mean 0.875; `b` has 1, 0.125 more.

    The risks of `plan` fall with time, C-index 1, and those of `b` rise, 0. The HPV answers are equal and right.
    """
    summary, page = compare(work, ["plan", "b"], None, 1)
    assert "GTVp mean DSC: b over plan +0.1250" in summary
    assert "C-index: plan over b +1.0000" in summary
    assert "Balanced accuracy: b over plan +0.0000" in summary
    results = work.shared / "comparisons" / "results"
    metrics = {name: read_json(results / "task1" / name / "metrics.json") for name in ("plan", "b")}
    by_centre = {
        centre: one["aggregates"]["gtvp_dsc_mean"]["value"] for centre, one in metrics["plan"]["centres"].items()
    }
    assert by_centre == {"A": 0.75, "B": 1.0}
    html = page.read_text()
    assert page == work.shared / "comparisons" / "plan-against-b.html"
    assert "<h1>plan against b</h1>" in html
    assert str(work.shared) not in html


def test_a_head_that_one_plan_lacks_is_named(work: WorkFolders, tmp_path: Path) -> None:
    write_heads(WorkFolders(work.shared, "b"), answers((1.0, 2.0, 3.0, 4.0), None))
    summary, page = compare(work, ["plan", "b"], tmp_path / "out.html", 1)
    assert "HPV status" in summary
    assert "not every experiment has such a head" in summary
    assert page == tmp_path / "out.html"
    assert "not every experiment has such a head" in page.read_text()


def test_heads_of_earlier_masks_are_left_out(work: WorkFolders) -> None:
    """As after `postprocess` without `heads`: the new masks are compared, the answers of the old ones are not."""
    write_json(WorkFolders(work.shared, "b").features_json, {"key": "filtered"})
    summary, page = compare(work, ["plan", "b"], None, 1)
    line = "b: heads left out, since they were fitted by another version, or before masks, patients or the outcome network changed"
    assert f"{line} (`hecktor train heads --name b` fits them again)" in summary
    assert line in page.read_text()
    assert "GTVp mean DSC: b over plan +0.1250" in summary
    assert summary.count("not every experiment has such a head") == 2
    assert "C-index" not in summary


def test_the_page_in_a_folder(work: WorkFolders, tmp_path: Path) -> None:
    """As `hecktor report --output` takes it; what cannot be written ends the comparison before the work."""
    (tmp_path / "cmp").mkdir()
    _, page = compare(work, ["plan", "b"], tmp_path / "cmp", 1)
    assert page == tmp_path / "cmp" / "index.html"
    shutil.rmtree(work.shared / "comparisons")
    with pytest.raises(HecktorError, match=r"^--output: found the file index\.html"):
        compare(work, ["plan", "b"], page / "below", 1)
    assert not (work.shared / "comparisons").exists()


def test_unfiltered_masks_are_compared_without_heads(work: WorkFolders) -> None:
    unfiltered = work.root / "out_of_fold" / "unfiltered" / "masks"
    shutil.copytree(WorkFolders(work.shared, "b").masks, unfiltered)
    summary, _ = compare(work, ["plan", "plan:unfiltered"], None, 1)
    assert "GTVp mean DSC: plan:unfiltered over plan +0.1250" in summary
    assert summary.count("not every experiment has such a head") == 2


def test_a_search_for_rules_is_said(work: WorkFolders) -> None:
    """Beside the unfiltered masks, only those that follow the search have the line."""
    shutil.copytree(work.masks, work.root / "out_of_fold" / "unfiltered" / "masks")
    write_json(work.postprocessing_json, record_json({"gtvn_volume_ml": 0.5}, settings=40))
    cache(work.features_json, "key", {"A-1": {}})
    summary, page = compare(work, ["plan", "plan:unfiltered"], None, 1)
    line = "plan: 40 settings of rules were searched on the masks of 36 patients; each mask has the rules that were found without its fold"
    assert summary.splitlines().count(line) == 1
    assert line in page.read_text()
    write_json(work.postprocessing_json, record_json({}, "no rule gains enough", settings=40))
    line = f"{line.partition(';')[0]}; the masks are unfiltered (no rule gains enough)"
    assert searched_rules([experiment_of(work.shared, "plan")]) == [line]


def test_the_comparison_is_restricted_to_common_patients(work: WorkFolders) -> None:
    b = WorkFolders(work.shared, "b")
    b.mask("A-1").unlink()
    cases, lines = common_patients([experiment_of(work.shared, name) for name in ("plan", "b")])
    assert [case.patient_id for case in cases] == ["A-2", "B-1", "B-2"]
    assert lines == ["b has masks of 3 of 4 patients; the comparison is restricted to the 3 that all experiments have"]
    for name in ("A-2", "B-1", "B-2"):
        b.mask(name).unlink()
    with pytest.raises(HecktorError, match=r"^compare: no patient with a mask of every experiment \(plan 4, b 0\)"):
        compare(work, ["plan", "b"], None, 1)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["plan", "plan"], "found plan, plan, expected at least two different experiments"),
        (["plan", "none"], "none: no out-of-fold masks, expected `hecktor train heads --name none` before"),
        (["plan", "b:unfiltered"], "no out-of-fold masks, expected `hecktor train postprocess --name b` before"),
        (["plan", "b:other"], "b:other: not an experiment, expected the name of a plan, NAME:unfiltered"),
        (["plan", "../b"], "name of a plan: found '../b'"),
        (
            ["plan", "given"],
            "given: a file or folder, expected the name of a plan; `hecktor train heads --name NAME --networks",
        ),
    ],
)
def test_what_cannot_be_compared(
    work: WorkFolders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], message: str
) -> None:
    """A folder may have the name of a plan, as `b` here."""
    monkeypatch.chdir(tmp_path)
    for folder in ("given", "b"):
        (tmp_path / folder).mkdir()
    with pytest.raises(HecktorError) as problem:
        compare(work, names, None, 1)
    assert message in str(problem.value)


def test_one_model_alone_in_place_of_the_heads(work: WorkFolders) -> None:
    """The heads order the four relapses rightly, C-index 1; the entrant's head reverses them, 0. It gives no status."""
    content = answers((4.0, 3.0, 2.0, 1.0), HPV)
    content["rfs"]["nested"]["comparators"] = {"my_model:Head": {"score": [1.0, 2.0, 3.0, 4.0]}}
    write_heads(work, content)
    summary, page = compare(work, ["plan", "plan:my_model:Head"], None, 1)
    assert "C-index: plan over plan:my_model:Head +1.0000" in summary
    assert "not every experiment has such a head" in summary
    assert page.name == "plan-against-plan-my_model-Head.html"
    with pytest.raises(HecktorError, match=r"expected the name of a plan, NAME:unfiltered or NAME:my_model:Head$"):
        compare(work, ["plan", "plan:my_model:Other"], None, 1)
