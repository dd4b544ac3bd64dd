"""A release and a model package become a package with the same networks and heads of the release's patients, also if
`hecktor train all` is interrupted in each of its last steps and started again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from unittest.mock import DEFAULT, MagicMock

import pytest

from algorithm.network.package import load_package
from baseline.cli import main
from baseline.work import WorkFolders
from contract.archives import pack, unpack
from contract.errors import HecktorError
from contract.io.files import read_json, write_json
from contract.packages import make_file_entry
from tests.baseline.conftest import PATIENTS, make_empty_release, write_two_centres

pytestmark = pytest.mark.slow
# Keys whose values depend on times, or on the times of files.
TIMES = ("made_from", "seconds", "key")
# Module whose `write_json` is interrupted, calls before that, and the files of the step.
STEPS: tuple[tuple[str, int, Callable[[WorkFolders], list[Path]]], ...] = (
    ("postprocessing.step", 0, lambda work: [work.postprocessing_json, work.features_json, *work.masks.iterdir()]),
    ("fit", 1, lambda work: [work.heads_json, work.cross_validation_json]),
    ("report.report", 0, lambda work: [work.report / "index.html", work.report_json]),
    ("package.export", 1, lambda _: []),
)


def make_command(release: Path, root: Path, networks: Path, spacing_mm: str = "9") -> list[str]:
    places = ["--release", str(release), "--work", str(root / "work"), "--output", str(root / "package")]
    options = ["--networks", str(networks), "--folds", "2", "--jobs", "1", "--spacing-mm", *[spacing_mm] * 3]
    return ["all", *places, *options]


@pytest.fixture(scope="module")
def trained(tiny_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train heads of a release on the networks of a package. Tests change only copies of `work`."""
    root = tmp_path_factory.mktemp("trained")
    assert main(make_command(write_two_centres(make_empty_release(root)), root, tiny_package)) == 0
    return root


def test_heads_of_new_patients_on_the_networks_of_a_package(trained: Path, tiny_package: Path) -> None:
    """No plan is made and no network is trained. The new package differs from the existing package only in its heads."""
    existing, package = load_package(tiny_package), load_package(trained / "package")
    manifest = package.manifest
    assert manifest.edition == "hecktor2025"
    assert sorted(package.heads) == ["hpv", "hpv_clinical", "rfs", "rfs_clinical"]
    assert package.heads["rfs"] != existing.heads["rfs"]
    for name in ("plans.json", "fold_0.safetensors", "fold_1.safetensors"):
        assert (package.root / name).read_bytes() == (existing.root / name).read_bytes()
    for key in ("configuration", "folds", "mirror_axes"):
        assert getattr(manifest, key) == getattr(existing.manifest, key)
    assert manifest.training == {
        "patients": PATIENTS, "centres": ["CHUM", "HMR"], "folds": 2, "seed": 0,
        "heads_fitted_on": "out-of-fold masks",
    }  # fmt: skip
    sha256 = make_file_entry(tiny_package / "manifest.json")["sha256"]
    condition = "none of these patients was among the networks' training patients"
    assert manifest.networks_from == {"name": "tiny", "sha256": sha256, "condition": condition}
    card = (package.root / "MODEL_CARD.md").read_text()
    assert f"the package tiny (sha256 of its manifest {sha256})" in card
    assert condition in card
    assert [path.name for path in (trained / "work" / "nnunet").iterdir()] == ["raw"]
    assert len(read_json(trained / "work" / "features.json")["result"]) == PATIENTS


def test_the_same_networks_change_nothing(trained: Path, tiny_package: Path, tmp_path: Path) -> None:
    """The networks may be an archive, the package can be an archive too, and the steps continue without `--networks`.
    A spacing other than the networks' and a plan of new networks are refused.
    """
    work, release = Path(shutil.copytree(trained / "work", tmp_path / "work")), trained / "release"
    steps = [work / "features.json", work / "cross_validation.json", work / "report" / "index.html"]
    before = read_times(steps)
    pack(tiny_package, tmp_path / "model.tar.gz")
    assert main(make_command(release, tmp_path, tmp_path / "model.tar.gz")) == 0
    assert main(["heads", "--work", str(work)]) == 0
    assert main(["heads", "--work", str(work), "--networks", str(tiny_package)]) == 0
    assert read_times(steps) == before
    assert main(["export", "--work", str(work), "--output", str(tmp_path / "packed.tar.gz")]) == 0
    unpack(tmp_path / "packed.tar.gz", tmp_path / "unpacked")
    assert load_package(tmp_path / "unpacked").manifest == load_package(tmp_path / "package").manifest
    with pytest.raises(HecktorError, match=r"^--spacing-mm: found 3 3 3"):
        main(make_command(release, tmp_path, tiny_package, "3"))
    with pytest.raises(HecktorError, match=r"^networks: found the networks of a package"):
        main(["plan", "--work", str(work)])


def read_results(root: Path) -> dict[str, Any]:
    """Read the figures of a working directory and of its package."""
    work = WorkFolders(root / "work")
    paths = (
        work.postprocessing_json,
        work.features_json,
        work.heads_json,
        work.cross_validation_json,
        work.report_json,
    )
    figures = {path.name: {key: value for key, value in read_json(path).items() if key not in TIMES} for path in paths}
    masks = {path.name: path.read_bytes() for path in work.masks.iterdir()}
    return {**figures, "masks": masks, "package": load_package(root / "package").manifest}


def test_a_training_interrupted_in_each_step_ends_as_without_interruption(
    trained: Path, tiny_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs end while the step writes its results, and files of the steps before are not changed. `heads` ends between
    its two files, `export` after the first head.
    """
    work = WorkFolders(Path(shutil.copytree(trained / "work", tmp_path / "work")))
    for _, _, list_step_files in STEPS:
        for path in list_step_files(work):
            path.unlink()
    shutil.rmtree(work.report)
    command = make_command(trained / "release", tmp_path, tiny_package)
    finished: list[Path] = []
    times = read_times([work.unfiltered_features_json, *(work.unfiltered / "masks").iterdir()])
    for module, before, list_step_files in STEPS:
        interrupting_write = MagicMock(wraps=write_json, side_effect=[DEFAULT] * before + [KeyboardInterrupt])
        with monkeypatch.context() as patch:
            patch.setattr(f"baseline.{module}.write_json", interrupting_write)
            with pytest.raises(HecktorError, match=r"^interrupted: finished work is saved"):
                main(command)
        assert interrupting_write.call_count == before + 1
        assert read_times(times) == times
        assert not (tmp_path / "package").exists()
        times |= read_times(finished)
        finished = list_step_files(work)
    assert main(command) == 0
    assert read_times(times) == times
    assert read_results(tmp_path) == read_results(trained)


def read_times(paths: Iterable[Path]) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in paths}
