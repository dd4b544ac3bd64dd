"""Without a model package the shipped one answers with a warning, or is refused, through every entry point."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from algorithm.cli import main
from algorithm.predictor import Predictor
from contract.errors import ModelPackageError
from contract.io.files import read_json
from contract.packages import read_identity
from tests.conftest import drop_toy_notices

WARNING = (
    "model package: none given and none in /opt/ml/model, expected the package of a submission; "
    "the shipped package tiny answers, which is for rehearsals only"
)


@pytest.fixture
def arguments(case_folder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_package: Path) -> list[str]:
    """Return the arguments for a case of task 3 with clinical variables only; the tiny package is the shipped one."""
    monkeypatch.setattr("algorithm.network.loaded_package.DEFAULT_PACKAGES", tmp_path / "shipped")
    (tmp_path / "shipped").mkdir()
    (tmp_path / "shipped" / "hecktor2025").symlink_to(tiny_package)
    case_folder.write()
    folders = ["--input", str(case_folder.input), "--output", str(case_folder.output)]
    return ["--task", "3", "--method", "clinical", *folders, "--record", str(tmp_path / "record.json")]


def test_the_shipped_package_is_a_warning_in_log_and_record(
    arguments: list[str], tmp_path: Path, tiny_package: Path, capsys: Any, root_logger: None
) -> None:
    assert main(arguments) == 0
    log = capsys.readouterr().err
    assert f"*** WARNING *** {WARNING}\n" in log
    assert f"model package: tiny, manifest sha256 {read_identity(tiny_package).manifest_sha256[:12]} (for tests)" in log
    (notice,) = read_json(tmp_path / "record.json")["notices"]
    assert notice["what"] == "model package"


def test_python_warns_too(arguments: list[str], case_folder: Any, tiny_package: Path) -> None:
    """`Predictor` takes the shipped package, and its record has the warning."""
    predictor = Predictor(task="hpv", device="cpu", passes=1)
    assert WARNING in map(str, predictor.predict(case_folder.input).record.notices)
    record = Predictor(tiny_package, task="hpv", device="cpu", passes=1).predict(case_folder.input).record
    assert drop_toy_notices(record.notices) == []


@pytest.mark.parametrize("options", [["--no-serve"], ["--serve", "--port", "0"]])
def test_a_required_model_refuses_to_answer(
    arguments: list[str], options: list[str], case_folder: Any, root_logger: None
) -> None:
    """Command and server stop, and write no answer."""
    with pytest.raises(ModelPackageError) as error:
        main([*arguments, "--require-model", *options])
    expected = "the uploaded package: --require-model refuses the shipped one"
    assert str(error.value) == f"model package: none in /opt/ml/model, expected {expected}"
    assert not case_folder.output.exists() or not list(case_folder.output.iterdir())
