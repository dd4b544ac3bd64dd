"""`scripts/release` refuses a tree that is not a release, before it builds anything."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = ("pyproject.toml", "models/pyproject.toml", "CITATION.cff")


def run_git(tree: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=tester", "-c", "user.email=tester@example.org")
    subprocess.run(("git", *identity, *arguments), cwd=tree, check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Commit a tree of version 1.2.3 without its tag, whose set-up fails."""
    tree = tmp_path / "tree"
    shutil.copytree(ROOT / "scripts", tree / "scripts")
    (tree / "models").mkdir()
    for name in FILES:
        (tree / name).write_text('version = "1.2.3"\n' if name.endswith("toml") else "version: 1.2.3\n")
    (tree / "CHANGELOG.md").write_text("# Changelog\n\n## [1.2.3] - 2026-12-01\n")
    (tree / "scripts" / "setup").write_text("#!/bin/sh\necho set-up; exit 9\n")
    run_git(tree, "init", "--quiet")
    run_git(tree, "add", "--all")
    run_git(tree, "commit", "--quiet", "--message", "A release")
    return tree


def run_release(tree: Path, *arguments: str) -> tuple[int, str]:
    """Return the exit status and the last printed line, on a machine without a container engine."""
    command = [tree / "scripts" / "release", *arguments]
    environment = os.environ | {"HECKTOR_ENGINE": "false"}
    done = subprocess.run(command, cwd=tree.parent, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, (done.stdout + done.stderr).splitlines()[-1]


def test_a_clean_tag_is_released(tree: Path) -> None:
    assert run_release(tree) == (1, "error: found no tag v1.2.3 at HEAD, expected it: git tag v1.2.3")
    run_git(tree, "tag", "v1.2.3")
    assert run_release(tree, "--without-images") == (9, "set-up")
    assert not (tree / "dist").exists()


def test_without_an_engine_nothing_is_built(tree: Path) -> None:
    run_git(tree, "tag", "v1.2.3")
    error = "error: no container engine can build images: start one, or try scripts/engine"
    assert run_release(tree) == (1, error)


def test_a_changed_file_is_refused(tree: Path) -> None:
    run_git(tree, "tag", "v1.2.3")
    (tree / "new").touch()
    assert run_release(tree) == (1, "error: found a file that differs from the commit (?? new), expected none")


@pytest.mark.parametrize("name", FILES[1:])
def test_one_version_is_released(tree: Path, name: str) -> None:
    (tree / name).write_text((tree / name).read_text().replace("1.2.3", "1.2.4"))
    assert run_release(tree) == (1, f"error: {name}: found version 1.2.4, expected 1.2.3 as in pyproject.toml")


@pytest.mark.parametrize("heading", ["## [1.2.3] - unreleased", "## [1.2.30] - 2026-12-01", "## [1x2.3] - 2026-12-01"])
def test_a_version_without_a_date_is_refused(tree: Path, heading: str) -> None:
    (tree / "CHANGELOG.md").write_text(f"# Changelog\n\n{heading}\n")
    assert run_release(tree)[1] == "error: CHANGELOG.md: found no date for 1.2.3, expected '## [1.2.3] - YYYY-MM-DD'"


def test_an_output_that_exists_is_kept(tree: Path) -> None:
    run_git(tree, "tag", "v1.2.3")
    output = tree.parent / "output"
    output.mkdir()
    assert run_release(tree, "--output", "output") == (1, f"error: {output}: exists, expected a new folder")


def test_the_versions_of_this_tree_agree() -> None:
    """`pyproject.toml` defines the version; setuptools and CITATION.cff cannot refer to it."""
    versions = {
        line.partition("version")[2].strip(' =:"\n')
        for name in FILES
        for line in (ROOT / name).read_text().splitlines()
        if line.startswith("version")
    }
    assert len(versions) == 1
