"""`scripts/release` refuses a tree that is not a release, before it builds anything."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = ("pyproject.toml", "models/pyproject.toml", "CITATION.cff")


def git(tree: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.org")
    subprocess.run(("git", *identity, *arguments), cwd=tree, check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A committed tree of version 1.2.3 without its tag, whose set-up fails."""
    tree = tmp_path / "tree"
    shutil.copytree(ROOT / "scripts", tree / "scripts")
    (tree / "models").mkdir()
    for name in FILES:
        (tree / name).write_text('version = "1.2.3"\n' if name.endswith("toml") else "version: 1.2.3\n")
    (tree / "CHANGELOG.md").write_text("# Changelog\n\n## [1.2.3] - 2026-12-01\n")
    (tree / "scripts" / "setup").write_text("#!/bin/sh\necho set-up; exit 9\n")
    git(tree, "init", "--quiet")
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", "--message", "A release")
    return tree


def release(tree: Path, *arguments: str) -> tuple[int, str]:
    """The exit status, and the last line that is printed, on a machine without a container engine."""
    command = [tree / "scripts" / "release", *arguments]
    environment = os.environ | {"HECKTOR_ENGINE": "false"}
    done = subprocess.run(command, cwd=tree.parent, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, (done.stdout + done.stderr).splitlines()[-1]


def test_a_clean_tag_is_released(tree: Path) -> None:
    assert release(tree) == (1, "error: found no tag v1.2.3 at HEAD, expected it: git tag v1.2.3")
    git(tree, "tag", "v1.2.3")
    assert release(tree, "--without-images") == (9, "set-up")
    assert not (tree / "dist").exists()


def test_without_an_engine_nothing_is_built(tree: Path) -> None:
    git(tree, "tag", "v1.2.3")
    error = "error: no container engine that can build answers: start one, or try scripts/engine"
    assert release(tree) == (1, error)


def test_a_changed_file_is_refused(tree: Path) -> None:
    git(tree, "tag", "v1.2.3")
    (tree / "new").touch()
    assert release(tree) == (1, "error: found a file that differs from the commit (?? new), expected none")


@pytest.mark.parametrize("name", FILES[1:])
def test_one_version_is_released(tree: Path, name: str) -> None:
    (tree / name).write_text((tree / name).read_text().replace("1.2.3", "1.2.4"))
    assert release(tree) == (1, f"error: {name}: found version 1.2.4, expected 1.2.3 as in pyproject.toml")


@pytest.mark.parametrize("heading", ["## [1.2.3] - unreleased", "## [1.2.30] - 2026-12-01", "## [1x2.3] - 2026-12-01"])
def test_a_version_without_a_date_is_refused(tree: Path, heading: str) -> None:
    (tree / "CHANGELOG.md").write_text(f"# Changelog\n\n{heading}\n")
    assert release(tree)[1] == "error: CHANGELOG.md: found no date for 1.2.3, expected '## [1.2.3] - YYYY-MM-DD'"


def test_an_output_that_exists_is_kept(tree: Path) -> None:
    git(tree, "tag", "v1.2.3")
    output = tree.parent / "output"
    output.mkdir()
    assert release(tree, "--output", "output") == (1, f"error: {output}: exists, expected a new folder")


def test_the_versions_of_this_tree_agree() -> None:
    """`pyproject.toml` is the place of the version; setuptools and CITATION.cff cannot refer to it."""
    found = {
        line.partition("version")[2].strip(' =:"\n')
        for name in FILES
        for line in (ROOT / name).read_text().splitlines()
        if line.startswith("version")
    }
    assert len(found) == 1
