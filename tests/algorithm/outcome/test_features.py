"""The outcome network of a package: its answers through the command, and everything that leaves it out or refuses it."""

from __future__ import annotations

import logging
import math
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from algorithm.case.read import Case
from algorithm.cli import main
from algorithm.deadline import Deadline
from algorithm.heads.documents import Features
from algorithm.heads.feature_hook import FeatureHook, FeatureImages
from algorithm.heads.methods import method_for
from algorithm.masks.segmentation import Segmentation, Segmented
from algorithm.network.package import DEFAULT_PACKAGE, load_package
from algorithm.network.resident import Resident
from algorithm.outcome.network import OutcomeFeatures, OutcomeNetwork, event_free_days, load_outcome_network
from algorithm.outcome.plan import OutcomePlan, OutcomeTask, plan_of
from algorithm.prediction import PredictRequest
from algorithm.steps import RunContext, measure
from contract.editions import load_edition
from contract.errors import ModelPackageError, run_main
from contract.files import read_json, write_json
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, write_volume
from contract.packages import MANIFEST
from contract.patient import Patient
from tests.conftest import head_json, write_manifest
from tests.faults.fake_card import fake_card

PLAN = OutcomePlan(
    voxels=16,
    spacing_mm=8.0,
    width=2,
    clinical=("age_years", "hpv_status"),
    tasks=(OutcomeTask(answer="rfs"), OutcomeTask(answer="t_stage", classes=("T1", "T2", "T3", "T4"))),
)
CONTENT = PLAN.model_dump(mode="json")
FOLDS = "features/outcome_network"
EDITION = load_edition("hecktor2026")


def constant_network(folder: Path, rfs: float) -> None:
    """The files of a fold whose network answers `rfs` to every image, and equal probabilities of the four stages.

    Its last layer has no weights but a bias of 2 rfs + 1; the training patients' answers had mean 1 and SD 2.
    """
    torch.manual_seed(0)
    network = OutcomeNetwork(PLAN)
    with torch.no_grad():
        network.last.weight.zero_()
        network.last.bias.zero_()
        network.last.bias[0] = 2 * rfs + 1
        network.get_buffer("answer_mean")[0] = 1.0
        network.get_buffer("answer_sd")[0] = 2.0
    folder.mkdir(parents=True)
    save_file(
        {name: tensor.contiguous() for name, tensor in network.state_dict().items()}, folder / "weights.safetensors"
    )
    write_json(folder / "plan.json", CONTENT)


def sign(root: Path) -> None:
    """Write the manifest anew, with today's files."""
    manifest = {key: value for key, value in read_json(root / "manifest.json").items() if key != "files"}
    write_manifest(root, **manifest)


@pytest.fixture
def package(combined_package: Path, tmp_path: Path) -> Path:
    """Two folds that answer 0.5 and 1.5; the head of RFS has the weight 0.25 on their mean and the intercept 0.5."""
    root = shutil.copytree(combined_package, tmp_path / "package")
    for fold, rfs in enumerate((0.5, 1.5)):
        constant_network(root / FOLDS / f"fold_{fold}", rfs)
    hazard = {"days": [1000.0], "cumulative_hazard": [1.0]}
    write_json(root / "heads" / "rfs.json", {**head_json(("outcome_rfs", 0.25)), "survival": hazard})
    sign(root)
    return root


@pytest.fixture
def hook(package: Path) -> FeatureHook:
    (found,) = load_package(package).features
    return found


def outcome_features(
    hook: FeatureHook, case: Segmentation, clinical: Features, deadline: Deadline, device: str = "cpu"
) -> Features:
    images = FeatureImages(case.mask(), case.ct, case.pet, case.grid, None, clinical)
    return hook.measured(images, deadline, device)


def segmentation(tumour: bool = True, pet: bool = True, plan: str = "all") -> Segmentation:
    grid = Geometry((24, 24, 24), (4.0, 4.0, 4.0), (0.0, 0.0, 0.0))
    mask = np.zeros(grid.array_shape, dtype=np.uint8)
    mask[10:14, 10:14, 10:14] = tumour
    image = np.zeros(grid.array_shape, dtype=np.float32)
    certain = Segmentation.from_mask(mask, image, image + 1 if pet else None, grid)
    return Segmentation(certain.logits, certain.ct, certain.pet, grid, plan=plan)


def days(score: float) -> Any:
    """The restricted mean to day 1000 of a hazard that rises to e^score: 1000 (1 - e^-k) / k with k = e^score."""
    ratio = math.exp(score)
    return pytest.approx(1000 * (1 - math.exp(-ratio)) / ratio)


def predicted(case: Any, package: Path, root: Path, *options: str) -> Mapping[str, Any]:
    for key, volume in (("ct", case.ct), ("pet", case.pet)):
        write_volume(EDITION.inputs[key].path_under(case.input) / "a.mha", volume)
    EDITION.inputs["ehr"].path_under(case.input).write_text('{"Age": 61}')
    places = ["--edition", "hecktor2026", "--input", str(case.input), "--output", str(case.output)]
    more = ["--model", str(package), "--device", "cpu", "--record", str(root / "record.json"), *options]
    assert run_main(main, [*places, *more]) == 0
    record: Mapping[str, Any] = read_json(root / "record.json")
    return record


def test_command_answers_with_the_mean_of_the_folds(
    case_folder: Any, package: Path, tmp_path: Path, root_logger: None, capfd: pytest.CaptureFixture[str]
) -> None:
    """The folds answer 0.5 and 1.5, so the feature is 1 and the score 0.5 + 0.25 = 0.75."""
    record = predicted(case_folder, package, tmp_path)
    assert record["answers"]["rfs"] == days(0.75)
    assert record["fallbacks"] == []
    assert "outcome network: 2 of 2 folds on cpu" in capfd.readouterr().err
    assert record["seconds"]["outcome network"] > 0


def test_command_without_time_for_the_network(
    case_folder: Any,
    package: Path,
    tmp_path: Path,
    root_logger: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the passes used up the time the head takes the feature's median of the training, 1: again 0.75, but
    without a network; the other answers stay.
    """
    monkeypatch.setattr(OutcomeFeatures, "measure", lambda *_: pytest.fail("the network ran"))
    monkeypatch.setattr(Deadline, "left_s", lambda _: 0.0)
    record = predicted(case_folder, package, tmp_path)
    assert record["answers"]["rfs"] == days(0.75)
    assert record["segmented_by"] == "PET threshold"
    assert "outcome network" not in record["seconds"]


def test_answers_of_a_case(hook: FeatureHook) -> None:
    """Four equal stages have the log probability -log 4 each."""
    features = outcome_features(hook, segmentation(), {"age_years": None}, Deadline(600))
    stages = {f"outcome_t_stage_T{n}": pytest.approx(-math.log(4)) for n in range(1, 5)}
    assert features == {"outcome_rfs": pytest.approx(1.0), **stages}


def test_a_lost_card_leaves_the_outcome_network_to_the_cpu(package: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = run_of(package)
    with fake_card() as card:
        run.resident.__dict__["device"] = torch.device("cuda", 0)
        card.lost = True
        assert measured(run, segmentation())["outcome_rfs"] == pytest.approx(1.0)
    assert "outcome network: cuda:0 failed (CUDA error: unspecified launch failure" in caplog.text


def run_of(package: Path) -> RunContext:
    algorithm = EDITION.algorithms[0]
    method = method_for("baseline", EDITION, algorithm)
    request = PredictRequest(EDITION, algorithm, method, package, None, "cpu", 600)
    return RunContext(request, Resident(package, "cpu"))


def measured(run: RunContext, case: Segmentation) -> Features:
    features = measure(run, Segmented(Case(Volume(case.ct, case.grid), None, Patient()), case)).features
    assert features is not None
    return features


def clock(*seconds: float) -> Callable[[], float]:
    """A clock that shows these times in turn, then the last one."""
    times: Iterator[float] = iter(seconds)
    last = seconds[-1]
    return lambda: next(times, last)


def test_folds_without_time_are_left_out_of_the_mean(hook: FeatureHook, caplog: pytest.LogCaptureFixture) -> None:
    """Of 100 s the reserve takes 10. The first network runs from 50 to 75 s; 15 s do not suffice for another 25 s."""
    deadline = Deadline(100, clock(0.0, 50.0, 50.0, 75.0))
    features = outcome_features(hook, segmentation(), {}, deadline)
    assert features["outcome_rfs"] == pytest.approx(0.5)
    assert "outcome network: no time for 1 folds" in caplog.text


def stopped() -> Deadline:
    deadline = Deadline(600)
    deadline.stop()
    return deadline


@pytest.mark.parametrize(
    ("case", "deadline", "line"),
    [
        (segmentation(tumour=False), lambda: Deadline(600), "no tumour"),
        (segmentation(pet=False), lambda: Deadline(600), "no PET"),
        (segmentation(), lambda: Deadline(100, clock(0.0, 91.0)), "no time"),  # the reserve has begun
        (segmentation(), stopped, "no time"),
    ],
    ids=["no tumour", "no PET", "reserve", "must end"],
)
def test_network_is_left_out(
    hook: FeatureHook,
    case: Segmentation,
    deadline: Callable[[], Deadline],
    line: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "hecktor")
    features = outcome_features(hook, case, {}, deadline())
    assert all(value is None for value in features.values())
    assert f"outcome network: left out, {line}" in caplog.text


def test_a_threshold_mask_is_measured_without_the_package(tmp_path: Path) -> None:
    """64 voxels of 0.064 ml. The time may be up because the package takes too long to load, or all but its manifest may
    be unusable.
    """
    shutil.copyfile(DEFAULT_PACKAGE / MANIFEST, tmp_path / MANIFEST)
    features = measured(run_of(tmp_path), segmentation(plan=""))
    assert features["gtvp_volume_ml"] == pytest.approx(4.096)


def test_without_a_segmentation_a_head_that_sees_images_gets_nan(package: Path) -> None:
    """As in training for a patient without a PET or a tumour."""
    case = Case(Volume(segmentation().ct, segmentation().grid), None, Patient())
    cubes = measure(run_of(package), Segmented(case, None)).cubes
    assert cubes is not None
    np.testing.assert_array_equal(cubes(3, 2.0), np.full((1, 4, 3, 3, 3), np.nan))


@pytest.mark.parametrize("by_contours", [True, False])
def test_contours_are_measured_by_fitted_hooks_but_no_mask_of_the_pet_threshold(
    package: Path, by_contours: bool
) -> None:
    """The folds answer 0.5 and 1.5: their mean is 1."""
    case = segmentation(plan="")
    segmented = Segmented(Case(Volume(case.ct, case.grid), None, Patient()), case, by_contours=by_contours)
    features = measure(run_of(package), segmented).features
    assert features is not None
    assert features.get("outcome_rfs") == (pytest.approx(1.0) if by_contours else None)


def test_missing_clinical_values_take_the_training_medians() -> None:
    """Of two clinical values with medians 60 and 1, mean 50 and 0, SD 10 and 1, the missing ones become 1 each."""
    network = OutcomeNetwork(PLAN).eval()
    with torch.no_grad():
        network.last.weight.zero_()
        network.last.bias.zero_()
        network.last.weight[0, -2:] = torch.tensor([1.0, 2.0])
        for name, values in (("fill", [60.0, 1.0]), ("mean", [50.0, 0.0]), ("sd", [10.0, 1.0])):
            network.get_buffer(f"clinical_{name}").copy_(torch.tensor(values))
        cubes = torch.zeros(2, 4, 16, 16, 16)
        outputs = network(cubes, torch.tensor([[math.nan, math.nan], [70.0, 0.0]]))
    assert outputs[:, 0].tolist() == pytest.approx([1 * 1 + 1 * 2, 2 * 1])


def test_altered_weights_are_refused(package: Path) -> None:
    with (package / FOLDS / "fold_1" / "weights.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x01")
    with pytest.raises(ModelPackageError, match=r"fold_1/weights\.safetensors: sha256 .* modified"):
        load_package(package)


def test_event_free_days_of_equal_intervals() -> None:
    """Up to day 10, up to 30 and later have a third each: the survival falls to 2/3 and 1/3, and the area below it is
    10 x 5/6 + 20 x 1/2. A certain event before day 10 leaves 10 / 2.
    """
    outputs = torch.tensor([[0.0, 0.0], [40.0, 0.0]])
    days = event_free_days(outputs, torch.tensor([10.0, 30.0]))
    assert days.tolist() == pytest.approx([10 * 5 / 6 + 10, 5.0])


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({}, r"voxels: found nothing"),
        (CONTENT | {"voxels": 10**6}, r"voxels: found 1000000"),
        (CONTENT | {"tasks": []}, r"tasks: found \[\]"),
        (CONTENT | {"spacing_mm": 0}, r"spacing_mm: found 0"),
    ],
)
def test_odd_plans_are_refused(tmp_path: Path, plan: Any, message: str) -> None:
    write_json(tmp_path / "plan.json", plan)
    with pytest.raises(ModelPackageError, match=rf"plan\.json\.{message}"):
        plan_of(tmp_path)


def damage(path: Path, kind: str) -> None:
    weights = load_file(str(path))
    if kind == "text":
        path.write_text("no weights")
        return
    if kind == "missing":
        del weights["last.bias"]
    elif kind == "extra":
        weights["more"] = torch.zeros(1)
    elif kind == "shape":
        weights["last.bias"] = torch.zeros(3)
    else:
        weights["last.bias"][0] = math.nan
    save_file(weights, str(path))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("text", "not a safetensors file"),
        ("missing", r"Missing key\(s\) in state_dict: \"last\.bias\""),
        ("extra", r"Unexpected key\(s\) in state_dict: \"more\""),
        ("shape", r"size mismatch for last\.bias: .*\[3\].*\[5\]"),
        ("nan", "last.bias holds NaN or infinity"),
    ],
)
def test_weights_of_another_network_are_left_out(package: Path, kind: str, message: str) -> None:
    """The head takes its training median, with a notice."""
    path = package / FOLDS / "fold_0" / "weights.safetensors"
    damage(path, kind)
    sign(package)
    with pytest.raises(ModelPackageError, match=message):
        load_outcome_network(PLAN, path)
    run = run_of(package)
    assert "outcome_rfs" not in measured(run, segmentation())
    (notice,) = run.notices.findings
    assert (notice.what, notice.action) == ("outcome network", "the heads take their training medians")


def test_a_file_that_the_manifest_does_not_list_is_refused(package: Path) -> None:
    (package / FOLDS / "more.txt").write_text("")
    with pytest.raises(ModelPackageError, match=r"^manifest\.json: does not list features/outcome_network/more\.txt"):
        load_package(package)
