"""Predictions of HECKTOR 2026's four answers for a small case, and heads that fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from algorithm.heads.parts import Survival
from algorithm.network.loaded_package import LoadedPackage
from algorithm.pipeline import predict
from algorithm.prediction import Prediction
from algorithm.request import METHODS, PredictRequest
from contract.code import Code
from contract.images.volumes import read_volume
from contract.io.files import read_json, write_json
from tests.algorithm.conftest import list_files
from tests.algorithm.edition import COMBINED, EDITION_2026
from tests.conftest import CaseFolder, class_head_json, head_json, write_manifest

MASK = "images/head-neck-tumor-segmentation/output.mha"
NODE = (slice(8, 10), slice(13, 15), 9)
FILES = [MASK, "n-stage.json", "rfs.json", "t-stage.json"]
SURVIVAL = Survival(days=(1000.0, 2000.0), cumulative_hazard=(0.2, 0.6))
RECORD = {"CenterID": "NEW", "Age": 61, "Gender": 1, "Tobacco Consumption": 0, "Alcohol Consumption": 1,
          "Performance Status": 0, "Treatment": 1, "HPV Status": 1}  # fmt: skip


def add_node(case: CaseFolder) -> CaseFolder:
    """Add a second, smaller hot spot 40 mm behind the primary: a node."""
    case.pet.array[NODE] = 12.0
    return case.write()


def predict_case(case: CaseFolder, package: Path, *code: Path, **changes: Any) -> Prediction:
    """Predict the case with the package, user code and `changes` of the request."""
    request = PredictRequest(
        EDITION_2026, COMBINED, METHODS["baseline"], case.input, case.output, "cpu", COMBINED.time_limit_s
    )
    return predict(replace(request, code=code, **changes), LoadedPackage(package, "cpu", code))


def read_values(case: CaseFolder) -> dict[str, Any]:
    """Read the written values, and check that the mask is on the CT's grid."""
    assert list_files(case.output) == FILES
    assert read_volume(case.output / MASK).geometry.find_differences(case.ct.geometry) == []
    return {path.stem: read_json(path) for path in case.output.glob("*.json")}


def answer_rfs_by(**parts: Any) -> dict[str, Any]:
    """Return a head of RFS with these parts, and with days that follow from `SURVIVAL`."""
    return head_json() | parts | {"survival": SURVIVAL.model_dump(mode="json")}


def has_nodes(case: CaseFolder) -> bool:
    return bool((read_volume(case.output / MASK).array == 2).any())


def write_heads(package: Path, *, fallbacks: Any = None, code: Path | None = None, **heads: Any) -> None:
    """Replace heads (None removes one), the training's fallbacks, and the folder of code that the manifest names."""
    for name, content in heads.items():
        path = package / "heads" / f"{name}.json"
        path.unlink()
        if content is not None:
            write_json(path, content)
    digest = {} if code is None else {"code": {code.name: Code.from_folders([code]).digest(code.name)}}
    write_manifest(
        package, edition=EDITION_2026.name, **digest, **({} if fallbacks is None else {"fallbacks": fallbacks})
    )


def write_code(folder: Path, content: str) -> Path:
    """Write a module of user code, `my_code`."""
    (folder / "my_code").mkdir()
    (folder / "my_code" / "__init__.py").write_text(content)
    return folder / "my_code"


def make_n_head(preferred: str) -> dict[str, Any]:
    """Make a head that gives every patient the same class."""
    return class_head_json({f"N{k}": float(f"N{k}" == preferred) for k in range(4)})


def bug(*_: object, **__: object) -> Any:
    raise ZeroDivisionError("a bug")
