"""Answers in time despite signals, a network that hangs, a lost device, or too little time."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithm.deadline import Termination
from algorithm.network import passes as passes_module
from algorithm.network.loaded_package import LoadedPackage
from algorithm.network.passes import Passes, Progress
from algorithm.network.tiles import list_mirrored_passes
from algorithm.pipeline import predict
from algorithm.request import METHODS, PredictRequest
from contract.editions import Algorithm
from contract.errors import ModelPackageError
from contract.images.volumes import Volume, read_volume
from tests.algorithm.edition import EDITION, RFS, SEGMENTATION
from tests.conftest import write_manifest

MASK = f"{SEGMENTATION.answers[0].socket.relative_path}/output.mha"


@pytest.fixture
def make_request(case_folder: Any) -> Callable[..., PredictRequest]:
    case_folder.write()

    def make(task: Algorithm = SEGMENTATION, time_limit_s: float = 600.0) -> PredictRequest:
        method = METHODS["baseline"]
        return PredictRequest(EDITION, task, method, case_folder.input, case_folder.output, "cpu", time_limit_s)

    return make


@pytest.fixture
def package(tiny_package: Path) -> LoadedPackage:
    return LoadedPackage(tiny_package, "cpu")


def read_mask(request: PredictRequest) -> np.ndarray:
    return np.asarray(read_volume(request.output_dir / MASK).array)


def test_a_plain_case(make_request: Callable[..., PredictRequest], package: LoadedPackage) -> None:
    request = make_request()
    record = predict(request, package).record
    assert list(record.seconds) == ["read", "localise", "threshold", "restore", "write", "load", "segment"]
    assert "4 of 4 passes on cpu" in record.summary()


def test_a_missing_head_without_a_fallback_is_an_error(
    make_request: Callable[..., PredictRequest], tiny_package: Path, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(tiny_package, tmp_path / "package"))
    (root / "heads" / "rfs.json").unlink()
    write_manifest(root)
    request = make_request(RFS)
    with pytest.raises(ModelPackageError, match="no head 'rfs'"):
        predict(request, LoadedPackage(root, "cpu"))
    assert not list(request.output_dir.rglob("*"))


def test_a_network_that_hangs_before_its_first_pass(
    make_request: Callable[..., PredictRequest],
    package: LoadedPackage,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Half of 3 s are reserve; when half of the reserve is gone, at 2.25 s, the PET threshold answers."""
    released = threading.Event()
    monkeypatch.setattr(Passes, "make_first", lambda self: released.wait(60) and None)
    request = make_request(RFS, 3.0)
    begun = time.monotonic()
    record = predict(request, package).record
    released.set()
    assert 2.2 <= time.monotonic() - begun < 20
    line = "*** FALLBACK *** time is nearly up: no pass has been made yet, the PET threshold answers"
    assert caplog.text.count(line) == 1
    assert ", no pass, by PET threshold, " in record.summary()
    assert RFS.answers[0].socket.path_under(request.output_dir).exists()


def test_an_early_end_writes_the_completed_passes(
    make_request: Callable[..., PredictRequest],
    package: LoadedPackage,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Ending in the second pass gives the mask of the first pass."""
    request = make_request()
    termination = Termination()
    monkeypatch.setattr(passes_module, "list_passes", lambda package: list_mirrored_passes(1, ()))
    predict(request, package)
    first_pass = (request.output_dir / MASK).read_bytes()
    monkeypatch.undo()
    real = Passes._make_pass

    def second_hangs(self: Passes, step: Any, member: Any) -> Any:
        if step != self.passes[0]:
            termination.request()
            while not self.deadline.is_stopped():
                time.sleep(0.01)
        return real(self, step, member)

    monkeypatch.setattr(Passes, "_make_pass", second_hangs)
    predict(request, package, termination)
    assert "*** EARLY END *** asked to end: the best answer so far is written" in caplog.text
    assert (request.output_dir / MASK).read_bytes() == first_pass


def test_a_case_waits_for_the_network_of_the_case_before_it(
    make_request: Callable[..., PredictRequest], package: LoadedPackage, caplog: pytest.LogCaptureFixture
) -> None:
    """While the network is in use the PET threshold is the best answer; then the network answers."""
    request = make_request(RFS, 3.0)
    with package.in_use:
        predict(request, package)
    assert "*** FALLBACK *** time is nearly up: no pass has been made yet" in caplog.text
    assert "4 of 4 passes" in predict(make_request(RFS), package).record.summary()


@pytest.mark.parametrize("uptake", [12.0, 0.0])
def test_an_empty_mask_of_the_network_where_the_pet_shows_uptake(
    make_request: Callable[..., PredictRequest],
    case_folder: Any,
    package: LoadedPackage,
    monkeypatch: pytest.MonkeyPatch,
    uptake: float,
) -> None:
    """Masks stay empty with a notice, since necks have physiologic uptake. Two voxels of 10 mm have SUV 12 in each
    axis, 1 around them: between centres it falls linearly, to 41% of 12 after (12 - 4.92) / 11 x 10 = 6.4 mm. So at
    least a cube of 10 mm (1 ml) and at most one of 22.9 mm (12 ml) is hot.
    """

    def nothing(progress: Progress) -> np.ndarray:
        logits = np.zeros_like(progress.total)
        logits[0] = 1
        return logits

    monkeypatch.setattr(Progress, "logits", property(nothing))
    request = make_request()
    if not uptake:
        case_folder.pet = Volume(np.zeros_like(case_folder.pet.array), case_folder.pet.geometry)
        case_folder.write()
    record = predict(request, package).record
    notices = [str(finding) for finding in record.notices if finding.what == "mask"]
    assert not read_mask(request).any()
    assert record.fallback_by == {}
    if uptake:
        (line,) = notices
        match = re.fullmatch(r"mask: empty, though the PET shows ([\d.]+) ml of uptake up to SUV ([\d.]+), .*", line)
        assert match is not None
        assert 1 < float(match[1]) <= 12
        assert 9 < float(match[2]) <= 12
    else:
        assert notices == []
