"""`scripts/try-run` with an engine that only notes how it was called and prints a log."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from contract.archives import pack

ROOT = Path(__file__).resolve().parents[2]
TRY_RUN = ROOT / "scripts" / "try-run"
MANIFEST = b'{"name": "mine"}'
SHA256 = hashlib.sha256(MANIFEST).hexdigest()[:12]
# Copies what it would mount as model, which is removed afterwards.
ENGINE = """\
#!/bin/bash
echo "$*" >> {folder}/calls
[ "$*" != "image inspect hecktor-larynx:latest" ] || exit 1
case "$*" in
    "exec "*" cat /opt/app/edition.json") cat {folder}/edition.json; exit ;;
    "exec "*" - invoke "*) echo '{{"status": 201}}' ;;
esac
[ "$1" = run ] || exit 0
# What the image's Python would do, as far as it needs no container.
[[ "$*" != *" --entrypoint python3 "* ]] || {{ cd {root}; while [ "$1" != -c ]; do shift; done; exec {python} "$@"; }}
for word in "$@"; do
    case "$word" in *:/opt/ml/*) cp -r "${{word%%:*}}" {folder}/mounted ;; esac
done
[ ! -f {folder}/log ] || cat {folder}/log >&2
"""

TryRun = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def try_run(tmp_path: Path) -> TryRun:
    engine = tmp_path / "engine"
    engine.write_text(ENGINE.format(folder=tmp_path, root=ROOT, python=sys.executable))
    engine.chmod(0o755)
    (tmp_path / "input").mkdir()
    # The host's Python has no packages and does not find the project.
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    python.chmod(0o755)

    def run(image: str, *options: str | Path, log: str = "") -> subprocess.CompletedProcess[str]:
        (tmp_path / "log").write_text(log)
        # Paths are relative to the caller's folder, which is not that of the repository.
        words = [word.relative_to(tmp_path) if isinstance(word, Path) else word for word in options]
        command = [TRY_RUN, image, "input", "output", *words]
        path = f"{python.parent}:{os.environ['PATH']}"
        environment = os.environ | {"HECKTOR_ENGINE": str(engine), "PATH": path}
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "manifest.json").write_bytes(MANIFEST)
    return folder


def said(sha256: str) -> str:
    return f"2026-01-01 model package: mine, manifest sha256 {sha256} (for tests)\n"


@pytest.mark.parametrize("packed", [False, True])
def test_a_model_is_mounted_unpacked(try_run: TryRun, model: Path, tmp_path: Path, packed: bool) -> None:
    pack(model, tmp_path / "model.tar.gz")
    done = try_run("rfs", "--model", tmp_path / "model.tar.gz" if packed else model, log=said(SHA256))
    assert done.returncode == 0, done.stderr
    assert f"model package: manifest sha256 {SHA256} of " in done.stdout
    assert said(SHA256) in done.stdout
    assert (tmp_path / "mounted" / "manifest.json").read_bytes() == MANIFEST


@pytest.mark.parametrize("log", [said("0" * 12), "no model package is named\n"])
def test_another_model_in_the_log_fails(try_run: TryRun, model: Path, log: str) -> None:
    done = try_run("rfs", "--model", model, log=log)
    assert done.returncode == 1
    named = "model package: mine, manifest sha256 000000000000" if "000" in log else "no model package"
    assert done.stderr.splitlines()[-1] == f"error: the log names {named}, expected sha256 {SHA256} of {model}"


def test_nothing_is_started_without_a_usable_model(try_run: TryRun, tmp_path: Path) -> None:
    """Docker would make an absent folder, as root. Only an archive is tried: in the image, without a mount."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "cut.tar.gz").write_bytes(b"\x1f\x8b")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "weights").touch()
    for name, problem in (
        ("typo", f"--model: {tmp_path}/typo not found, expected a folder or .tar.gz"),
        ("empty", f"--model: {tmp_path}/empty holds no file"),
        ("cut.tar.gz", "cut.tar.gz: cannot be unpacked (Compressed file ended"),
        ("other", f"--model: no manifest.json in {tmp_path}/other, expected a model package"),
    ):
        done = try_run("rfs", "--model", tmp_path / name)
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1].startswith(f"error: {problem}")
    assert not (tmp_path / "typo").exists()
    (unpacking,) = [line for line in (tmp_path / "calls").read_text().splitlines() if line.startswith("run ")]
    assert "--network none --entrypoint python3 hecktor-rfs:latest -c " in unpacking
    assert "-v" not in unpacking.split()
    assert "volume create" not in (tmp_path / "calls").read_text()


def test_an_argument_of_the_other_kind_of_image_is_an_error(try_run: TryRun, model: Path) -> None:
    done = try_run("evaluation-rfs", "--model", model)
    assert done.stderr == "error: --model: found with an evaluation image, expected an algorithm's\n"
    done = try_run("rfs", "--ground-truth", model)
    assert done.stderr == "error: --ground-truth: found with an algorithm image, expected an evaluation's\n"


def test_a_ground_truth_is_mounted_unpacked(try_run: TryRun, model: Path, tmp_path: Path) -> None:
    pack(model, tmp_path / "ground_truth.tar.gz")
    assert try_run("evaluation-rfs", "--ground-truth", tmp_path / "ground_truth.tar.gz").returncode == 0
    assert (tmp_path / "mounted" / "manifest.json").exists()
    assert try_run("evaluation-rfs", "--ground-truth", tmp_path / "typo").returncode == 1


@pytest.mark.parametrize(
    ("options", "tag"),
    [
        ([], "latest"),
        (["--cuda"], "cuda"),
        (["--require-model"], "require-model"),
        (["--require-model", "--cuda"], "cuda-require-model"),
    ],
)
def test_options_choose_the_tag(try_run: TryRun, tmp_path: Path, options: list[str], tag: str) -> None:
    assert try_run("rfs", *options).returncode == 0
    assert f"image inspect hecktor-rfs:{tag}\n" in (tmp_path / "calls").read_text()


def test_the_image_of_an_own_edition_may_lack_the_prefix(try_run: TryRun, tmp_path: Path) -> None:
    assert try_run("larynx").returncode == 0
    (run,) = [line for line in (tmp_path / "calls").read_text().splitlines() if line.startswith("run ")]
    assert run.endswith(" larynx:latest")


@pytest.mark.parametrize(("own_limit_s", "expected"), [(None, "600"), (1234, "1234")])
def test_a_server_has_the_time_limit_of_its_edition(
    try_run: TryRun, tmp_path: Path, own_limit_s: int | None, expected: str
) -> None:
    """Segmentation of the shipped edition has 600 s; an image of one's own edition contains its declaration."""
    if own_limit_s is not None:
        task = {"name": "segmentation", "time_limit_s": own_limit_s}
        own = {"name": "mine", "evaluation_profile": {}, "algorithms": [task]}
        (tmp_path / "edition.json").write_text(json.dumps(own))
    done = try_run("segmentation", "--invoke")
    assert done.returncode == 0, done.stderr
    assert f"- invoke 4743 {expected}\n" in (tmp_path / "calls").read_text()


def test_a_server_whose_time_limit_no_edition_declares(try_run: TryRun) -> None:
    done = try_run("larynx", "--invoke")
    assert done.returncode == 1
    assert "larynx:invoke: no edition declares its time limit, expected an image of scripts/build" in done.stderr
