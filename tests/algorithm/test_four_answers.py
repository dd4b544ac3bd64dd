"""A custom edition with a mask, two classes of four values and a time, which the product does not know."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithm import answers
from algorithm.cli import main
from algorithm.network.loaded_package import LoadedPackage
from algorithm.pipeline import predict
from algorithm.request import METHODS, PredictRequest
from contract.editions import load_edition
from contract.errors import ModelPackageError, run_main
from contract.images.volumes import read_volume, write_volume
from contract.io.files import read_json, write_json
from tests.conftest import class_head_json, head_json

FOUR = Path(__file__).parents[1] / "editions" / "four_answers.json"
EDITION = load_edition(str(FOUR))
FILES = ["images/tumour-mask/output.mha", "n-stage.json", "survival.json", "t-stage.json"]

STAGES = {"T": range(1, 5), "N": range(4)}


@pytest.fixture
def package(tiny_package: Path, tmp_path: Path, sign_package: Callable[..., None]) -> Path:
    """Write heads over clinical variables only: ages count as +4 standard deviations, all scores begin at 0.5."""
    root = shutil.copytree(tiny_package, tmp_path / "package")
    starts = {stage: dict.fromkeys((f"{stage}{n}" for n in numbers), 0.5) for stage, numbers in STAGES.items()}
    write_json(root / "heads" / "t_stage.json", class_head_json(starts["T"], age_years=(0.1, 0.2, 0.3, -1.0)))
    write_json(root / "heads" / "n_stage.json", class_head_json(starts["N"], hpv_status=(0.1, 0.3, 0.3, 0.2)))
    hazard = {"days": [1000.0], "cumulative_hazard": [1.0]}
    write_json(root / "heads" / "survival.json", {**head_json(("age_years", 0.25)), "survival": hazard})
    sign_package(root, edition=EDITION.name)
    return root


@pytest.fixture
def case(case_folder: Any) -> Any:
    """Write the small case into the sockets of the custom edition."""
    write_volume(EDITION.inputs["ct"].path_under(case_folder.input) / "a.mha", case_folder.ct)
    write_volume(EDITION.inputs["pet"].path_under(case_folder.input) / "b.mha", case_folder.pet)
    record = {"Years": 61, "HPV": "positive", "Site": 3}
    EDITION.inputs["ehr"].path_under(case_folder.input).write_text(json.dumps(record))
    return case_folder


@pytest.fixture
def make_request(case: Any) -> PredictRequest:
    return PredictRequest(EDITION, EDITION.algorithms[0], METHODS["baseline"], case.input, case.output, "cpu", 600.0)


def read_values(output: Path) -> dict[str, Any]:
    return {path.stem: read_json(path) for path in output.glob("*.json")}


def test_all_four_answers(case: Any, package: Path, tmp_path: Path, root_logger: None) -> None:
    """T3 has the highest score; N1 and N2 are equal, so the lower one counts. The hazard ratio k is e^(0.5 + 4 x 0.25),
    the hazard rises by k to day 1000: the mean is 1000 (1 - e^-k) / k days.
    """
    options = ["--edition", str(FOUR), "--input", str(case.input), "--output", str(case.output)]
    options += ["--model", str(package), "--device", "cpu", "--record", str(tmp_path / "record.json")]
    assert run_main(main, options) == 0
    assert sorted(p.relative_to(case.output).as_posix() for p in case.output.rglob("*") if p.is_file()) == FILES
    mask = read_volume(case.output / FILES[0])
    assert mask.geometry.find_differences(case.ct.geometry) == []
    assert set(np.unique(mask.array)) <= {0, 1, 2}
    ratio = math.exp(1.5)
    days = pytest.approx(1000 * (1 - math.exp(-ratio)) / ratio)
    expected = {"t-stage": "T3", "n-stage": "N1", "survival": days}
    assert read_values(case.output) == expected
    record = read_json(tmp_path / "record.json")
    assert (record["edition"], record["task"], record["fallbacks"]) == ("four-answers", "everything", [])
    assert record["answers"] == {
        "mask": None, "t_stage": "T3", "n_stage": "N1", "survival": read_values(case.output)["survival"]
    }  # fmt: skip


def test_a_missing_head_without_a_fallback_is_an_error(
    make_request: PredictRequest, package: Path, sign_package: Callable[..., None]
) -> None:
    (package / "heads" / "t_stage.json").unlink()
    sign_package(package, edition=EDITION.name)
    answers = tuple(answer.model_copy(update={"fallback": None}) for answer in make_request.algorithm.answers)
    request = replace(make_request, algorithm=make_request.algorithm.model_copy(update={"answers": answers}))
    with pytest.raises(ModelPackageError, match="no head 't_stage'"):
        predict(request, LoadedPackage(package, "cpu"))
    assert request.output_dir is not None
    assert not list(request.output_dir.rglob("*"))


def test_a_late_lack_of_memory_leaves_the_answers_before(
    make_request: PredictRequest, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers of the first pass, after the threshold's, need no fallback."""
    real, calls = answers.image_features, []

    def short_of_memory(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise MemoryError
        return real(*arguments)

    monkeypatch.setattr(answers, "image_features", short_of_memory)
    record = predict(make_request, LoadedPackage(package, "cpu")).record
    assert (record.fallbacks, record.passes_done, len(calls)) == ((), 1, 3)
