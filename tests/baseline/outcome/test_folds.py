"""`hecktor train outcome`: trained over the folds, resumed, measured out-of-fold, exported."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from unittest.mock import DEFAULT, MagicMock

import numpy as np
import pytest

from algorithm.heads.feature_hook import OUTCOME_NETWORK
from algorithm.network.package import load_package
from algorithm.outcome.plan import OutcomeTask, plan_of
from baseline import pipeline
from baseline.cli import main
from baseline.heads.cubes import cut_cubes, image_paths
from baseline.network.given_masks import measure_masks
from baseline.network.plans import OUTCOME_PRESETS, OutcomePreset
from baseline.outcome import folds, trainer
from baseline.outcome.cohort import plan_outcome
from baseline.outcome.folds import OutcomeSettings, fits_stamp, fitted_hooks, train_outcome
from baseline.package.existing import use_networks
from baseline.pipeline import TrainingOptions, train
from baseline.release.cases import read_cases, write_cases
from baseline.release.data_set import label_path
from baseline.release.record import PrepareOptions, edition_of
from baseline.release.splits import read_splits
from baseline.work import WorkFolders
from contract.code import Code
from contract.errors import HecktorError
from contract.files import read_json
from tests.baseline.test_given_masks import heads

TINY = OutcomePreset(voxels=16, spacing_mm=8.0, width=2, epochs=2, batch_size=4)
NAMES = {"outcome_rfs", "outcome_hpv"}


@pytest.fixture(autouse=True)
def tiny_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OUTCOME_PRESETS, "small", TINY)  # type: ignore[misc]


class Folders:
    """Files of the outcome network."""

    def __init__(self, work: WorkFolders) -> None:
        self.root = work.root / "features" / "outcome_network"
        self.result = self.root / "features.json"

    def weights(self, fold: int) -> Path:
        return self.root / f"fold_{fold}" / "weights.safetensors"

    def record(self, fold: int) -> Path:
        return self.root / f"fold_{fold}.json"


def outcome(work: WorkFolders) -> None:
    assert main(["outcome", "--work", str(work.root), "--size", "small", "--jobs", "1"]) == 0


@pytest.mark.slow
def test_training_is_resumed_and_feeds_the_heads(
    prepared: tuple[WorkFolders, Path],
    tiny_package: Path,
    tmp_path: Path,
) -> None:
    """A lost fold is trained again with the same result, the other is left alone. The package needs heads that were
    fitted after it; they try the outcome network, and the package holds it. Other outcomes make it out of date.
    """
    work, masks = prepared
    with pytest.raises(HecktorError, match=r"no out-of-fold mask of .*"):
        outcome(work)
    heads(work, masks)
    first = work.heads_json.stat().st_mtime_ns
    outcome(work)
    folders = Folders(work)
    features = read_json(folders.result)["features"]
    assert set(features) == {case.patient_id for case in read_cases(work)}
    assert all(row.keys() == NAMES and None not in row.values() for row in features.values())
    weights = folders.weights(1).read_bytes()
    before = folders.weights(0).stat().st_mtime_ns
    folders.record(1).unlink()
    outcome(work)
    assert folders.weights(0).stat().st_mtime_ns == before
    assert folders.weights(1).read_bytes() == weights
    assert read_json(folders.result)["features"] == features
    with pytest.raises(HecktorError, match=r"^heads\.json: fitted by another version.* outcome network changed"):
        main(["export", "--work", str(work.root), "--output", str(tmp_path / "package")])
    heads(work, masks)
    assert work.heads_json.stat().st_mtime_ns > first
    check_reference_masks(work)
    check_export(work, tiny_package, tmp_path)
    cases = read_cases(work)
    write_cases(work, [replace(cases[0], outcomes=cases[1].outcomes), *cases[1:]])
    with pytest.raises(HecktorError, match="trained on other masks, images or outcomes"):
        heads(work, masks)


def check_reference_masks(work: WorkFolders) -> None:
    """Their heads do without the network, which saw automatic masks; a patient without a reference is left out."""
    cases = read_cases(work)
    write_cases(work, [replace(cases[0], mask=None), *cases[1:]])
    heads(work, Path("reference"))
    assert read_json(work.heads_json)["rfs"]["tried"].keys() >= {"outcome network"}
    assert "outcome network" not in read_json(work.of_reference_masks().heads_json)["rfs"]["tried"]
    write_cases(work, cases)


def check_export(work: WorkFolders, networks: Path, root: Path) -> None:
    """The package holds plan and weights of both folds."""
    use_networks(work, networks, (9.0, 9.0, 9.0))
    assert main(["export", "--work", str(work.root), "--output", str(root / "package")]) == 0
    package = load_package(root / "package")
    (hook,) = package.features
    assert [path.name for path in hook.folds] == ["fold_0", "fold_1"]
    assert plan_of(hook.folds[1]).tasks == (OutcomeTask(answer="rfs"), OutcomeTask(answer="hpv"))
    assert "features/outcome_network/fold_1/weights.safetensors" in package.manifest.files


def _check_settings_are_kept(work: WorkFolders, monkeypatch: pytest.MonkeyPatch) -> None:
    """Size, loss and `--joint` that are not given are those of the trained network, alone and in a whole training."""
    before, train = Folders(work).result.read_bytes(), MagicMock()
    assert main(["outcome", "--work", str(work.root), "--jobs", "1"]) == 0
    assert Folders(work).result.read_bytes() == before
    monkeypatch.setattr("baseline.steps.train", train)
    places = ["--work", str(work.root), "--release", "r", "--output", "p", "--preset", "short"]
    main(["all", *places, "--outcome-network"])
    assert train.call_args.args[0].outcome == OutcomeSettings("small", "mtlr", joint=True)
    monkeypatch.setattr("baseline.steps.train_outcome", train)
    main(["outcome", "--work", str(work.root), "--no-joint", "--size", "full"])
    assert train.call_args.args[1] == OutcomeSettings("full", "mtlr")


@pytest.mark.slow
def test_a_joint_training_is_recorded_and_its_answers_are_written(
    prepared: tuple[WorkFolders, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cubes get the reference masks as two more channels, NaN for a patient without one. Other references make the
    networks out of date. The heads' cross-validation does without the network; `train answers` writes its own held-out
    answers beside theirs.
    """
    work, masks = prepared
    first, *others = read_cases(work)
    without = replace(first, mask=None)
    for path, target in zip(image_paths(work, first), image_paths(work, without), strict=True):
        target.parent.mkdir(exist_ok=True)
        path.rename(target)
    cases = [without, *others]
    write_cases(work, cases)
    heads(work, masks)
    _, cubes = cut_cubes(work, cases, 16, 8.0, 1, with_reference=True)
    assert cubes.shape[1] == 6
    assert np.isnan(cubes[0, 4:]).all()
    assert not np.isnan(cubes[1:]).any()
    assert cubes[1:, 4:].any()
    options = ["--size", "small", "--loss", "mtlr", "--joint", "--jobs", "1"]
    assert main(["outcome", "--work", str(work.root), *options]) == 0
    settings = read_json(Folders(work).result)["settings"]
    assert (settings["loss"], settings["plan"]["joint"]) == ("mtlr", True)
    _check_settings_are_kept(work, monkeypatch)
    heads(work, masks)
    record = read_json(work.cross_validation_json)["rfs"]
    assert record["left_out_features"] == ["outcome_rfs"]
    assert "outcome network" not in record["nested"]["folds"][0]["tried"]
    answers = work.root / "answers"
    assert main(["answers", "--work", str(work.root), "--output", str(answers)]) == 0
    with (answers / OUTCOME_NETWORK / "answers.csv").open() as table:
        risks = {row["PatientID"]: float(row["risk"]) for row in csv.DictReader(table)}
    assert risks == {n: row["outcome_rfs"] for n, row in read_json(Folders(work).result)["features"].items()}
    label = label_path(work.raw, cases[1])
    label.write_bytes(label.read_bytes() + b"0")
    with pytest.raises(HecktorError, match="trained on other masks, images or outcomes"):
        heads(work, masks)


@pytest.mark.slow
@pytest.mark.parametrize("last", ["train_fold", "cache"])
def test_an_interrupted_training_of_another_size_leaves_no_mixed_set(
    prepared: tuple[WorkFolders, Path],
    monkeypatch: pytest.MonkeyPatch,
    last: str,
) -> None:
    """Two folds of `small` are done; `full` ends in its second fold, before its training or before its record. The
    package then has no outcome network. `small` again trains the folds that `full` has overwritten, to the same result.
    """
    work, masks = prepared
    measure_masks(work, masks)
    outcome(work)
    folders = Folders(work)
    before = folders.result.read_bytes()
    monkeypatch.setitem(OUTCOME_PRESETS, "full", replace(TINY, width=4))  # type: ignore[misc]
    with monkeypatch.context() as patch:
        module = "baseline.outcome.trainer" if last == "train_fold" else "baseline.outcome.folds"
        real = trainer.train_fold if last == "train_fold" else folds.cache
        patch.setattr(f"{module}.{last}", MagicMock(wraps=real, side_effect=[DEFAULT, KeyboardInterrupt]))
        with pytest.raises(HecktorError, match=r"^interrupted: "):
            main(["outcome", "--work", str(work.root), "--size", "full", "--jobs", "1"])
    assert fitted_hooks(work.root, [], Code({})) == []
    assert fits_stamp(work) == {}
    outcome(work)
    assert folders.result.read_bytes() == before
    (hook,) = fitted_hooks(work.root, [], Code({}))
    assert [plan_of(fold).width for fold in hook.folds] == [2, 2]


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        ("CUDA out of memory. Tried to allocate 2 GiB.", "CUDA out of memory, expected .* memory, or --size small"),
        ("CUDA error: unspecified launch failure", "CUDA error: .*, expected a device that answers; the same command"),
    ],
)
def test_a_full_or_lost_card_is_one_line(
    prepared: tuple[WorkFolders, Path],
    monkeypatch: pytest.MonkeyPatch,
    problem: str,
    message: str,
) -> None:
    work, masks = prepared
    measure_masks(work, masks)
    monkeypatch.setattr("baseline.outcome.trainer.train_fold", MagicMock(side_effect=RuntimeError(problem)))
    with pytest.raises(HecktorError, match=f"^outcome network, fold 0: {message}"):
        outcome(work)


def test_answers_that_cannot_be_learnt_are_named(prepared: tuple[WorkFolders, Path]) -> None:
    """Without a relapse and without HPV no answer is left."""
    work, masks = prepared
    measure_masks(work, masks)
    cases, edition, splits = read_cases(work), edition_of(work), read_splits(work)
    without = [replace(case, outcomes={**case.outcomes, "Relapse": False}) for case in cases]
    plan, why_not = plan_outcome(edition, without, splits, TINY)
    assert plan is not None
    assert [task.answer for task in plan.tasks] == ["hpv"]
    assert why_not == {"rfs": "0 training patients with an event in a fold, expected at least 2"}
    write_cases(work, [replace(case, outcomes={}) for case in cases])
    lines: list[str] = []
    with pytest.raises(HecktorError, match="no outcome to learn from"):
        train_outcome(work, OutcomeSettings("small"), show=lines.append)
    assert lines[1].startswith("outcome network without hpv: 0 training patients outside the most frequent class")


def test_a_whole_training_goes_on_without_an_outcome_network_that_cannot_be_trained(
    prepared: tuple[WorkFolders, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other steps are stubs."""
    work, masks = prepared
    measure_masks(work, masks)
    write_cases(work, [replace(case, outcomes={}) for case in read_cases(work)])
    steps = "use_networks _intention as_text prepare_release measure_out_of_fold postprocess_masks postprocessing_lines"
    for step in (*steps.split(), "fit_heads", "make_report", "export_model"):
        monkeypatch.setattr(pipeline, step, MagicMock(return_value=step))
    monkeypatch.setattr(pipeline.prepare, "summary", MagicMock())
    monkeypatch.setattr(pipeline, "check_release", MagicMock())
    lines: list[str] = []
    prepare = PrepareOptions(str(masks), (9.0, 9.0, 9.0))
    options = TrainingOptions(work.root, masks / "package", prepare, networks=masks, outcome=OutcomeSettings("small"))
    assert train(options, lines.append) == masks / "package"
    at = lines.index("outcome network: no outcome to learn from, expected patients with outcomes")
    assert lines[at + 1] == "fit_heads"
    assert lines[-1].splitlines()[1:] == [
        "  read the report      make_report",
        f"  the model package is {masks / 'package'}",
        f"  make the upload      hecktor submission --package {masks / 'package'} --output {work.root / 'submission'}",
    ]
