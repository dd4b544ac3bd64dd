"""Organ masks from a folder as further labels, from the plan to a package that answers without them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from algorithm.network.networks import Networks
from algorithm.network.package import load_package
from algorithm.network.windows import Pass
from baseline.cli import main as train_main
from baseline.network.training.organs import load_with_tumours, read_organs, tumours_alone, with_organs
from baseline.release.cases import read_cases
from baseline.work import PLANS_NAME, WorkFolders
from contract.errors import InputError
from contract.files import read_json, write_json
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, read_volume, write_volume
from hecktor.cli import main as hecktor_main
from tests.baseline.conftest import TinyRelease
from tests.baseline.test_existing_networks import write_release

GRID = Geometry((4, 4, 4), (3.0, 3.0, 3.0), (0.0, 0.0, 0.0))


def organ(path: Path, *planes: tuple[int, int], grid: Geometry = GRID) -> None:
    """A mask or label map: each pair is a z plane and its value."""
    array = np.zeros(grid.array_shape, np.uint8)
    for plane, value in planes:
        array[plane] = value
    path.parent.mkdir(parents=True, exist_ok=True)
    write_volume(path, Volume(array, grid))


def reference() -> Volume:
    """GTVp in one corner of the first plane."""
    array = np.zeros((4, 4, 4), np.uint8)
    array[0, 0, 0] = 1
    return Volume(array, GRID)


def test_one_file_for_each_organ(tmp_path: Path) -> None:
    """Sorted by name: brain 3, spine 4. The tumour stays, and where both organs lie the first one counts."""
    organ(tmp_path / "A-1" / "spine.nii.gz", (0, 1), (1, 1))
    organ(tmp_path / "A-1" / "brain.nii.gz", (1, 1))
    organs = read_organs(tmp_path, ["A-1"])
    assert organs.names == ("brain", "spine")
    merged = with_organs(reference(), organs, "A-1")
    assert (merged[0, 0, 0], merged[0, 1, 1], merged[1, 1, 1], merged[3, 1, 1]) == (1, 4, 3, 0)
    assert tumours_alone(merged).sum() == 1


def test_label_maps(tmp_path: Path) -> None:
    """Values 5 and 9 over both patients are the labels 3 and 4."""
    organ(tmp_path / "A-1.nii.gz", (1, 9))
    organ(tmp_path / "A-2.nii.gz", (1, 5))
    organs = read_organs(tmp_path, ["A-1", "A-2"])
    assert organs.names == ("organ 5", "organ 9")
    assert [int(with_organs(reference(), organs, name)[1, 1, 1]) for name in ("A-1", "A-2")] == [4, 3]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ((), "no such folder"),
        (("A-1/brain",), "A-2: 0 organ masks, other than elsewhere: brain, expected a mask of each organ"),
        (("A-1/GTVp", "A-2/GTVp"), "1 organs, GTVp, expected 1 to 250 organs with names other than background"),
        (("A-1",), r"A-2\.nii\.gz: not found, expected a label map of every patient"),
    ],
)
def test_refused_organs(files: tuple[str, ...], message: str, tmp_path: Path) -> None:
    for name in files:
        organ(tmp_path / "organs" / f"{name}.nii.gz", (0, 1))
    with pytest.raises(InputError, match=message):
        read_organs(tmp_path / "organs", ["A-1", "A-2"])


def test_patches_with_foreground_hold_tumours() -> None:
    def load_case(name: str) -> tuple[None, None, None, dict[str, dict[int, str]]]:
        return None, None, None, {"class_locations": {1: name, 2: "", 3: "organ"}}

    assert load_with_tumours(load_case, "A-1")[3] == {"class_locations": {1: "A-1", 2: ""}}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_a_training_with_organs_from_plan_to_answer(
    tiny_release: TinyRelease, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One organ: half of each CT. The trained network has four outputs, its packages answer with three, whether
    `train` or `hecktor package` wrote them; the prepared references and the data set keep two labels.
    """
    for name in ("raw", "preprocessed", "results", "n_proc_DA", "compile"):
        monkeypatch.setenv(f"nnUNet_{name}", "")
    release, work, organs = write_release(tiny_release), WorkFolders(tmp_path / "work"), tmp_path / "organs"
    place = ["--work", str(work.root), "--jobs", "1"]
    coarse = ["--spacing-mm", "6", "6", "6"]
    assert train_main(["prepare", "--release", str(release), *place, "--folds", "2", *coarse]) == 0
    for case in read_cases(work):
        ct = read_volume(case.ct)
        organ(
            organs / case.patient_id / "half.nii.gz", *((z, 1) for z in range(ct.array.shape[0] // 2)), grid=ct.geometry
        )
    small = ["--epochs", "1", "--iterations", "1", "--memory-gb", "0.1", "--base-features", "8", "--most-features", "8"]
    assert train_main(["plan", *place, *small, "--organs", str(organs)]) == 0
    assert read_json(work.plans)["configurations"]["3d_fullres"]["architecture"]["organs"] == ["half"]
    assert read_json(work.preprocessed / "dataset.json") == read_json(work.raw / "dataset.json")
    assert max(int(read_volume(path).array.max()) for path in (work.raw / "labelsTr").iterdir()) == 2
    dataset = read_json(work.raw / "dataset.json")  # beside another plan with organs, which is being made
    write_json(work.preprocessed / "dataset.json", dataset | {"labels": dataset["labels"] | {"other": 3}})
    assert train_main(["fold", *place, "--fold", "0"]) == 0
    weights = torch.load(work.final(0), weights_only=False)["network_weights"]
    assert weights["decoder.seg_layers.0.weight"].shape[0] == 4
    results = work.results / f"ShortTrainer__{PLANS_NAME}__3d_fullres"
    target = tmp_path / "package"
    command = ["package", "--nnunet", str(results), "--without-heads", "--normalised-over", "region"]
    assert hecktor_main([*command, "--output", str(target)]) == 0
    package = load_package(target)
    assert package.manifest.training["organs"] == ["half"]
    network = Networks(package).of(Pass(0).fold, torch.device("cpu"))
    with torch.inference_mode():
        assert network(torch.zeros(1, 2, *package.patch_of(0))).shape[1] == 3
    case, mask = read_cases(work)[0], tmp_path / "mask.nii.gz"
    files = ["--ct", str(case.ct), "--pet", str(case.pet), "--output", str(mask)]
    assert hecktor_main(["predict", "--model", str(target), *files]) == 0
    assert set(np.unique(read_volume(mask).array)) <= {0, 1, 2}
