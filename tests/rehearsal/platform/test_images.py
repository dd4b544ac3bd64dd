"""Checks of an uploaded image, as on the platform."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from contract.errors import EngineError
from rehearsal.platform.images import (
    ImageFacts,
    find_hidden_programs,
    find_upload_problems,
    find_version_warnings,
    is_archive,
)


def make_facts(**changes) -> ImageFacts:
    sound = {"name": "i", "user": "hecktor", "architecture": "amd64", "api_method": "exec"}
    return ImageFacts(**{**sound, "variables": (), **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(
            ({"user": user}, "expected a user that is not root")
            for user in ("", "root", "0", "0:0", "0:1000", "root:root")
        ),
        ({"architecture": "arm64"}, "built for arm64, expected amd64"),
        ({"api_method": "batch"}, "'batch', expected exec or invoke"),
    ],
)
def test_an_image_is_refused_for_one_reason(changes, message):
    (problem,) = find_upload_problems(make_facts(**changes))
    assert message in problem
    assert problem.endswith("; the platform would refuse the image")


@pytest.mark.parametrize("user", ["hecktor", "1000", "1000:0", "rooty", "00x"])
def test_users_other_than_root_are_accepted(user):
    assert find_upload_problems(make_facts(user=user)) == []


@pytest.mark.parametrize(
    ("config", "hidden"),
    [
        ({"WorkingDir": "/opt/ml/model/code"}, "WORKDIR /opt/ml/model/code is hidden"),
        ({"Entrypoint": ["python", "/opt/ml/model/run.py"]}, "ENTRYPOINT /opt/ml/model/run.py is hidden"),
        ({"Entrypoint": ["/tmp/run"]}, "ENTRYPOINT /tmp/run is hidden"),
        ({"WorkingDir": "/output"}, "WORKDIR /output is hidden"),
        ({"WorkingDir": "/opt/app", "Entrypoint": ["python", "-m", "algorithm"]}, None),
        ({"WorkingDir": "/tmpfiles", "Entrypoint": ["/opt/ml/models/run"]}, None),
    ],
)
def test_a_program_that_the_platform_hides_is_named(config: dict[str, object], hidden: str | None) -> None:
    problems = find_hidden_programs(ImageFacts.from_config("image", config, "amd64"))
    assert (hidden is None) == (problems == [])
    assert all(str(hidden) in problem for problem in problems)


def test_a_program_of_the_path_is_not_in_the_working_folder() -> None:
    config = {"WorkingDir": "/opt/ml/model", "Entrypoint": ["python3", "-u", "run.py"]}
    _, second = find_hidden_programs(ImageFacts.from_config("image", config, "amd64"))
    assert second.startswith("image: ENTRYPOINT /opt/ml/model/run.py is hidden")


@pytest.mark.parametrize(
    ("variables", "layer_commands", "versions"),
    [
        (["PYTORCH_VERSION=2.9.0"], [], ["PyTorch 2.9.0"]),
        ([], ["RUN pip install torch==2.9.1 nnunetv2"], ["PyTorch 2.9.1"]),
        (["CUDA_VERSION=13.0.1"], [], ["CUDA 13.0.1"]),
        ([], ["RUN pip install torch --index-url https://download.pytorch.org/whl/cu130"], ["CUDA cu130"]),
        (["PYTORCH_VERSION=2.8.0", "CUDA_VERSION=12.6"], ["RUN pip install torch==2.10.0"], []),
    ],
)
def test_versions_that_the_platform_cannot_run_are_warnings(
    variables: list[str], layer_commands: list[str], versions: list[str]
) -> None:
    warnings = find_version_warnings(ImageFacts.from_config("image", {"Env": variables}, "amd64", layer_commands))
    assert len(warnings) == len(versions)
    assert all(part in warning for part, warning in zip(versions, warnings, strict=True))


@pytest.mark.parametrize(
    ("wheels", "versions"),
    [
        (["torch-2.9.1+cu128.dist-info"], ["PyTorch 2.9.1"]),
        (["torch-2.9.0.dist-info", "nvidia_cuda_runtime-13.0.96.dist-info"], ["PyTorch 2.9.0", "CUDA 13.0.96"]),
        (["torch-2.10.0+cu130.dist-info"], ["CUDA cu130"]),
        (["torch-2.10.0.dist-info", "nvidia_cudnn_cu13-9.13.0.50.dist-info"], ["CUDA cu13"]),
        (["torch-2.8.0.dist-info", "nvidia_cuda_runtime_cu12-12.8.90.dist-info"], []),
        (["torch-2.90.0.dist-info"], []),
    ],
)
def test_versions_come_from_the_wheels(wheels: list[str], versions: list[str]) -> None:
    """pip names the folders `torch-VERSION.dist-info`, and CUDA's, which from 13 on have no suffix."""
    facts = replace(ImageFacts.from_config("image", {}, "amd64"), wheels=tuple(wheels))
    assert [warning.split(": ")[1].split(", ")[0] for warning in find_version_warnings(facts)] == versions


def test_an_archive_of_more_than_10_gb_is_refused(tmp_path: Path) -> None:
    """Because of its holes the file takes no space."""
    for name in ("image.tar.gz", "image.zip"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(10_000_000_000)
    assert is_archive(tmp_path / "image.tar.gz")
    assert not is_archive(tmp_path / "image.zip")
    with (tmp_path / "image.tar.gz").open("ab") as file:
        file.truncate(10_010_000_000)
    with pytest.raises(EngineError, match=r"^image\.tar\.gz: 10\.01 GB, expected at most 10 GB"):
        is_archive(tmp_path / "image.tar.gz")
