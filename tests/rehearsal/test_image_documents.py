"""The JSON members of an archive of an image are bounded together."""

import gzip
import io
import tarfile
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from contract.errors import EngineError
from rehearsal.images import ImageFacts, facts_of_archive, hidden_problems, version_warnings


def test_many_json_members_take_neither_memory_nor_time(tmp_path: Path) -> None:
    """Some kilobytes of gzip hold 2 MiB of `{},` each, which would be about 50 MB of dictionaries."""
    document = b"[" + b"{}," * ((2 << 20) // 3 - 2) + b"0]"
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for number in range(20):
            member = tarfile.TarInfo(f"{number}.json")
            member.size = len(document)
            archive.addfile(member, io.BytesIO(document))
    path = tmp_path / "image.tar.gz"
    path.write_bytes(gzip.compress(content.getvalue()))
    assert path.stat().st_size < 200_000
    tracemalloc.start()
    with pytest.raises(EngineError, match="JSON members of more than 33554432 bytes together"):
        facts_of_archive(path)
    assert tracemalloc.get_traced_memory()[1] < 60e6
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({"WorkingDir": "/opt/ml/model/code"}, "WORKDIR /opt/ml/model/code is hidden"),
        ({"Entrypoint": ["python", "/opt/ml/model/run.py"]}, "ENTRYPOINT /opt/ml/model/run.py is hidden"),
        ({"Entrypoint": ["/tmp/run"]}, "ENTRYPOINT /tmp/run is hidden"),
        ({"WorkingDir": "/output"}, "WORKDIR /output is hidden"),
        ({"WorkingDir": "/opt/app", "Entrypoint": ["python", "-m", "algorithm"]}, None),
        ({"WorkingDir": "/tmpfiles", "Entrypoint": ["/opt/ml/models/run"]}, None),
    ],
)
def test_a_program_that_the_platform_hides_is_named(config: dict[str, object], found: str | None) -> None:
    problems = hidden_problems(ImageFacts.of("image", config, "amd64", 1))
    assert (found is None) == (problems == [])
    assert all(str(found) in problem for problem in problems)


def test_a_program_of_the_path_is_not_in_the_working_folder() -> None:
    config = {"WorkingDir": "/opt/ml/model", "Entrypoint": ["python3", "-u", "run.py"]}
    _, second = hidden_problems(ImageFacts.of("image", config, "amd64", 1))
    assert second.startswith("image: ENTRYPOINT /opt/ml/model/run.py is hidden")


@pytest.mark.parametrize(
    ("variables", "made_by", "found"),
    [
        (["PYTORCH_VERSION=2.9.0"], [], ["PyTorch 2.9.0"]),
        ([], ["RUN pip install torch==2.9.1 nnunetv2"], ["PyTorch 2.9.1"]),
        (["CUDA_VERSION=13.0.1"], [], ["CUDA 13.0.1"]),
        ([], ["RUN pip install torch --index-url https://download.pytorch.org/whl/cu130"], ["CUDA cu130"]),
        (["PYTORCH_VERSION=2.8.0", "CUDA_VERSION=12.6"], ["RUN pip install torch==2.10.0"], []),
    ],
)
def test_versions_that_the_platform_cannot_run_are_warnings(
    variables: list[str], made_by: list[str], found: list[str]
) -> None:
    warnings = version_warnings(ImageFacts.of("image", {"Env": variables}, "amd64", 1, made_by=made_by))
    assert len(warnings) == len(found)
    assert all(part in warning for part, warning in zip(found, warnings, strict=True))


@pytest.mark.parametrize(
    ("wheels", "found"),
    [
        (["torch-2.9.1+cu128.dist-info"], ["PyTorch 2.9.1"]),
        (["torch-2.9.0.dist-info", "nvidia_cuda_runtime-13.0.96.dist-info"], ["PyTorch 2.9.0", "CUDA 13.0.96"]),
        (["torch-2.10.0+cu130.dist-info"], ["CUDA cu130"]),
        (["torch-2.10.0.dist-info", "nvidia_cudnn_cu13-9.13.0.50.dist-info"], ["CUDA cu13"]),
        (["torch-2.8.0.dist-info", "nvidia_cuda_runtime_cu12-12.8.90.dist-info"], []),
        (["torch-2.90.0.dist-info"], []),
    ],
)
def test_versions_are_those_of_the_wheels(wheels: list[str], found: list[str]) -> None:
    """Names as pip writes them: `torch-VERSION.dist-info`, and CUDA's, which from 13 on have no suffix."""
    facts = replace(ImageFacts.of("image", {}, "amd64", 1), wheels=tuple(wheels))
    assert [warning.split(": ")[1].split(", ")[0] for warning in version_warnings(facts)] == found
