"""Disks that are full, folders that are not there, limits of the process, clocks that jump."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from contract.editions import Algorithm
from tests.algorithm.edition import COMBINED, RFS, SEGMENTATION

Runs = Callable[..., Any]
Namespace = Callable[..., list[str]]
# Threshold and clinical variables start faster and write by the same way.
QUICK: Final = {SEGMENTATION.name: ("--method", "threshold"), COMBINED.name: ("--passes", "1")} | dict.fromkeys(
    ("rfs", "hpv"), ("--method", "clinical")
)
# A mask, and four answers in files of both kinds.
BY_FILES: Final = pytest.mark.parametrize("task", [SEGMENTATION, COMBINED], ids=lambda task: task.name)


# Disks


@BY_FILES
def test_the_output_disk_is_full(run: Runs, case_folder: Any, namespace: Namespace, task: Algorithm) -> None:
    """A disk of 64 KiB that is full to the last block; what was written is looked at afterwards."""
    disk, output = case_folder.root / "disk", case_folder.output
    script = f"""
        mkdir {disk} && mount -t tmpfs -o size=64k tmpfs {disk} && mkdir {disk}/output
        head -c 65536 /dev/zero > {disk}/filler
        mount --bind {disk}/output {output}
        status=0; "$@" || status=$?
        umount {output} && cp -a {disk}/output/. {output}
        exit $status"""
    ended = run(task, before=namespace(script), options=QUICK[task.name]).whole()
    assert (ended.status, ended.files) == (1, [])
    assert "no space left on the disk, expected free space in " in ended.last


@pytest.mark.parametrize(
    ("task", "size"),
    [(SEGMENTATION, 300), (RFS, 2), (COMBINED, 300)],
    ids=lambda value: str(getattr(value, "name", value)),
)
def test_a_file_that_cannot_be_written_to_its_end(run: Runs, task: Algorithm, size: int) -> None:
    """The first bytes are taken, the others refused."""
    ended = run(task, limits={"RLIMIT_FSIZE": size}, options=QUICK[task.name]).whole()
    assert (ended.status, ended.files) == (1, [])
    assert "cannot be written (File too large)" in ended.last


@BY_FILES
def test_a_read_only_output(run: Runs, case_folder: Any, namespace: Namespace, task: Algorithm) -> None:
    output = case_folder.output
    script = f'mount --bind {output} {output} && mount -o remount,bind,ro {output} && exec "$@"'
    ended = run(task, before=namespace(script), options=QUICK[task.name]).whole()
    assert (ended.status, ended.files) == (1, [])
    assert "cannot be written (Read-only file system)" in ended.last


@pytest.mark.slow
def test_nothing_but_the_output_can_be_written(
    run: Runs, case_folder: Any, combined_package: Path, namespace: Namespace
) -> None:
    """A read-only root file system, an empty /tmp that cannot be written either, and no home.

    Python and this project are put back where they were, for the case that they are in /tmp.
    """
    root, package = case_folder.root, case_folder.root / "package"
    subprocess.run(["cp", "-r", str(combined_package), str(package)], check=True)
    kept = sorted({Path(sys.prefix), Path(sys.base_prefix), Path(__file__).parents[2]})
    aside = "\n".join(f"mkdir /mnt/{n} && mount --bind {place} /mnt/{n}" for n, place in enumerate(kept))
    back = "\n".join(f"mkdir -p {place} && mount --bind /mnt/{n} {place}" for n, place in enumerate(kept))
    script = f"""
        mount -t tmpfs tmpfs /mnt && mkdir /mnt/case && mount --bind {root} /mnt/case
        {aside}
        mount -t tmpfs tmpfs /tmp && mkdir -p {root} && mount --bind /mnt/case {root}
        {back}
        mount --bind {root}/output {root}/output
        for place in / /mnt /tmp /dev/shm {root} {" ".join(map(str, kept))}; do mount -o remount,bind,ro $place; done
        ! touch /file /tmp/file /var/tmp/file /dev/shm/file {root}/file 2> /dev/null
        touch {root}/output/file && rm {root}/output/file
        exec "$@\""""
    settings = {"env": {**os.environ, "HOME": "/nowhere"}, "cwd": "/"}
    ended = run(COMBINED, before=namespace(script), package=package, settings=settings).whole()
    assert ended.status == 0, ended.said
    assert "4 of 4 passes" in ended.last
    assert "Read-only" not in ended.said  # nothing else wanted to write


def test_a_log_that_cannot_be_written(run: Runs) -> None:
    """The answer is what counts."""
    ended = run(SEGMENTATION, options=QUICK[SEGMENTATION.name], log="/dev/full").whole()
    assert ended.status == 0
    assert ended.files


# Limits


def test_the_platforms_memory_limit(run: Runs) -> None:
    """16 GB of RAM less one."""
    ended = run(COMBINED, limits={"RLIMIT_DATA": 15 * 2**30}).whole()
    assert ended.status == 0, ended.said
    assert "4 of 4 passes" in ended.last


# Clocks


def test_a_wall_clock_that_jumps(run: Runs) -> None:
    """A day ahead in the first pass, ten years back in the second: no pass is lost, none is made too many."""
    jump = "[setattr(time, name, lambda: {}) for name in ('time', 'time_ns')]"
    ended = run(
        COMBINED,
        f"run algorithm.network.tiles:_tile_logits 3 {jump.format('1.9e9')}",
        f"run algorithm.network.tiles:_tile_logits 11 {jump.format('1.4e9')}",
    ).whole()
    assert ended.status == 0, ended.said
    assert "4 of 4 passes" in ended.last
    left_s, limit_s = ended.last.split(", ")[-1].removesuffix(" s left").split(" s of ")
    assert float(left_s) > float(limit_s) - 200


def test_a_wall_clock_that_is_not_there(run: Runs) -> None:
    """Without the log's own time stamps nobody asks for it; the package is named before."""
    broken = "[setattr(time, name, None) for name in ('time', 'time_ns', 'localtime', 'gmtime')]"
    silent = "sys.modules['logging'].disable()"
    ended = run(SEGMENTATION, f"run algorithm.pipeline:read_case 1 [{silent}, {broken}]").whole()
    assert ended.status == 0
    assert [line.split(" ", 2)[2].split(":")[0] for line in ended.said.splitlines()] == ["model package"]
