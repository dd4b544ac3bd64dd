"""Many cases through one process equal as many fresh starts: nothing leaks from one case to the next."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from algorithm.network.loaded_package import LoadedPackage
from algorithm.pipeline import predict
from algorithm.request import METHODS, PredictRequest
from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from tests.algorithm.edition import COMBINED, EDITION_2026
from tests.algorithm.test_serve import call, read_files, start_server
from tests.conftest import EHR, CaseFolder, small_patient
from tests.faults.forked import Forks

KINDS = (
    "usual",
    "tumour and node",
    "no uptake",
    "no neck",
    "shifted grid",
    "Bq/ml",
    "truncated",
    "no ehr",
    "one voxel",
)
# Status and files.
Answer = tuple[int, dict[str, bytes]]


def write_case(root: Path, seed: int) -> CaseFolder:
    """Write a case of a kind that `seed` chooses, with random uptake and a random part of the clinical variables."""
    shutil.rmtree(root / "input", ignore_errors=True)
    case, kind, rng = CaseFolder(root), KINDS[seed % len(KINDS)], np.random.default_rng(seed)
    case.pet.array[case.pet.array > 2] = rng.uniform(6, 20)
    clinical = EHR | {"Age": int(rng.integers(30, 90))}  # only the age counts in the package's heads
    case.ehr = {key: value for key, value in clinical.items() if rng.random() < 0.6}
    if kind == "tumour and node":
        case.pet.array[3:5, 13:15, 9] = rng.uniform(8, 15)
    elif kind == "no uptake":
        case.pet.array[case.pet.array > 1] = 1.0
    elif kind == "no neck":
        case.ct.array[:] = -1000
    elif kind == "shifted grid":
        grid = Geometry((26, 22, 17), (7.5, 8.5, 10.0), (-95.0, -90.0, float(rng.uniform(-95, -80))))
        case.ct = Volume(small_patient(grid), grid)
    elif kind == "Bq/ml":
        case.pet.array[:] *= 4000
    elif kind == "one voxel":
        case.pet.array[case.pet.array > 2] = 1.0
        case.pet.array[9, 10, 10] = 15.0
    case.write()
    if kind == "truncated":
        case.ct_path.write_bytes(case.ct_path.read_bytes()[:-200])
    elif kind == "no ehr":
        case.ehr_path.write_text("[")
    return case


def predict_with_new_package(package: Path, case: CaseFolder) -> int:
    """Answer a case with a package that is loaded again; return the status of a server."""
    folders = case.input, case.output
    request = PredictRequest(EDITION_2026, COMBINED, METHODS["baseline"], *folders, "cpu", 600.0, max_passes=1)
    predict(request, LoadedPackage(package, "cpu"))
    return 201


def collect_answers(root: Path, seeds: np.ndarray, answer: Callable[[CaseFolder], int]) -> dict[int, Answer]:
    """Return the answers by seed, in the order of `seeds`; the output folder is empty before each case, as on the
    platform.
    """
    answers = {}
    for seed in map(int, seeds):
        shutil.rmtree(root / "output", ignore_errors=True)
        answers[seed] = answer(write_case(root, seed)), read_files(root / "output")
    return answers


@pytest.mark.slow
def test_cases_in_one_process_equal_fresh_starts(forks: Forks, combined_package: Path, tmp_path: Path) -> None:
    """One server answers all cases in a shuffled order, and a fresh package answers each in another.

    `test_serve.py` has an edition whose damaged cases fail.
    """
    seeds = np.random.default_rng(7).permutation(len(KINDS))
    root, options = tmp_path / "served", ("--edition", EDITION_2026.name, "--passes", "1")
    with start_server(forks, write_case(root, 0), combined_package, COMBINED.name, *options) as (_, port):
        served = collect_answers(root, seeds, lambda _: call(port, "POST", "/invoke")[0])
    assert {status for status, _ in served.values()} == {201}
    assert served == collect_answers(
        tmp_path / "fresh", seeds[::-1], partial(predict_with_new_package, combined_package)
    )
    assert len({tuple(sorted(files.items())) for _, files in served.values()}) > len(KINDS) / 3
