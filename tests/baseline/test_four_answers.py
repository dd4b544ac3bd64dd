"""Coarse phantoms of HECKTOR 2026 and a package of 2025 become a package that gives all four answers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from algorithm.cli import main as predict
from algorithm.network.package import load_package
from baseline.cli import main as train
from baseline.work import WorkFolders, read_min_lesion_sizes
from contract.editions import load_edition
from contract.errors import run_main
from contract.io.files import read_json
from rehearsal.phantoms.centres import CENTRES
from rehearsal.phantoms.cohort import coarsen_protocol, make_case
from rehearsal.phantoms.make import LAYOUTS
from rehearsal.phantoms.rendering import render
from tests.baseline.test_small_releases import write_release

pytestmark = pytest.mark.slow

EDITION = load_edition("hecktor2026")


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Write a release of six coarse phantoms, and another patient in the platform's layout."""
    root, case = tmp_path_factory.mktemp("cohort"), make_case(26, 6, CENTRES, "head_and_neck")
    case = replace(case, protocol=coarsen_protocol(case.protocol, 8))
    LAYOUTS["platform"](EDITION).write_case(root / "platform", case, render(case))
    return write_release(root / "release", EDITION.name), root / "platform" / case.patient_id / "input"


def test_heads_of_2026_on_networks_of_2025(
    cohort: tuple[Path, Path], tiny_package: Path, tmp_path: Path, root_logger: None
) -> None:
    release, platform_input = cohort
    (factors,) = release.rglob("suv_conversion_tags.csv")
    places = ["--release", str(release), "--work", str(tmp_path / "work"), "--output", str(tmp_path / "package")]
    networks = ["--networks", str(tiny_package), "--spacing-mm", "9", "9", "9"]
    more = ["--edition", "hecktor2026", "--suv-factors", str(factors), "--folds", "2", "--jobs", "1"]
    assert train(["all", *places, *networks, *more]) == 0
    package = load_package(tmp_path / "package")
    assert package.manifest.edition == "hecktor2026"
    assert {"t_stage", "n_stage", "rfs"} <= set(package.heads)
    check_fallbacks(package.manifest.fallbacks)
    assert package.manifest.smallest_lesions == read_min_lesion_sizes(WorkFolders(tmp_path / "work"))
    output = tmp_path / "output"
    options = ["--edition", "hecktor2026", "--input", str(platform_input), "--output", str(output), "--device", "cpu"]
    record = tmp_path / "record.json"
    assert run_main(predict, [*options, "--model", str(package.root), "--record", str(record)]) == 0
    assert read_json(record)["fallbacks"] == []
    t_stage, n_stage, rfs = (read_json(output / f"{name}.json") for name in ("t-stage", "n-stage", "rfs"))
    assert t_stage in ("T1", "T2", "T3", "T4")
    assert n_stage in ("N0", "N1", "N2", "N3")
    assert rfs > 0
    assert list((output / "images" / "head-neck-tumor-segmentation").iterdir())


def check_fallbacks(fallbacks: dict[str, Any]) -> None:
    """Check that each head has a fallback that is a valid answer."""
    assert set(fallbacks) == {"t_stage", "n_stage", "rfs"}
    for answer in EDITION.find_algorithm().head_specs:
        value = fallbacks[answer.head]
        assert value in answer.classes if answer.classes else value > 0
    json.dumps(fallbacks)
