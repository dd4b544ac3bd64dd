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
from tests.faults.conftest import Runs

Namespace = Callable[..., list[str]]
# Threshold and clinical variables start faster and write by the same way.
QUICK: Final = {SEGMENTATION.name: ("--method", "threshold"), COMBINED.name: ("--passes", "1")} | dict.fromkeys(
    ("rfs", "hpv"), ("--method", "clinical")
)


# Disks


def test_the_output_disk_is_full(run: Runs, case_folder: Any, namespace: Namespace) -> None:
    """Mount a disk of 64 KiB that is full to the last block, and look at its files afterwards."""
    disk, output = case_folder.root / "disk", case_folder.output
    script = f"""
        mkdir {disk} && mount -t tmpfs -o size=64k tmpfs {disk} && mkdir {disk}/output
        head -c 65536 /dev/zero > {disk}/filler
        mount --bind {disk}/output {output}
        status=0; "$@" || status=$?
        umount {output} && cp -a {disk}/output/. {output}
        exit $status"""
    ended = run(COMBINED, before=namespace(script), options=QUICK[COMBINED.name]).complete()
    assert (ended.status, ended.files) == (1, [])
    assert "no space left on the disk, expected free space in " in ended.last_line


@pytest.mark.parametrize(
    ("task", "size"), [(RFS, 2), (COMBINED, 300)], ids=lambda value: str(getattr(value, "name", value))
)
def test_a_file_that_cannot_be_written_to_its_end(run: Runs, task: Algorithm, size: int) -> None:
    ended = run(task, limits={"RLIMIT_FSIZE": size}, options=QUICK[task.name]).complete()
    assert (ended.status, ended.files) == (1, [])
    assert "cannot be written (File too large)" in ended.last_line


def test_a_read_only_output(run: Runs, case_folder: Any, namespace: Namespace) -> None:
    output = case_folder.output
    script = f'mount --bind {output} {output} && mount -o remount,bind,ro {output} && exec "$@"'
    ended = run(COMBINED, before=namespace(script), options=QUICK[COMBINED.name]).complete()
    assert (ended.status, ended.files) == (1, [])
    assert "cannot be written (Read-only file system)" in ended.last_line


@pytest.mark.slow
def test_nothing_but_the_output_can_be_written(
    run: Runs, case_folder: Any, combined_package: Path, namespace: Namespace
) -> None:
    """Only the output is writable: the root file system and an empty /tmp are read-only, and there is no home.

    Python and this project are mounted again because they may lie in /tmp.
    """
    root, package = case_folder.root, case_folder.root / "package"
    subprocess.run(["cp", "-r", str(combined_package), str(package)], check=True)
    folders = sorted({Path(sys.prefix), Path(sys.base_prefix), Path(__file__).parents[2]})
    move_aside = "\n".join(f"mkdir /mnt/{n} && mount --bind {place} /mnt/{n}" for n, place in enumerate(folders))
    move_back = "\n".join(f"mkdir -p {place} && mount --bind /mnt/{n} {place}" for n, place in enumerate(folders))
    script = f"""
        mount -t tmpfs tmpfs /mnt && mkdir /mnt/case && mount --bind {root} /mnt/case
        {move_aside}
        mount -t tmpfs tmpfs /tmp && mkdir -p {root} && mount --bind /mnt/case {root}
        {move_back}
        mount --bind {root}/output {root}/output
        for place in / /mnt /tmp /dev/shm {root} {" ".join(map(str, folders))}; do mount -o remount,bind,ro $place; done
        ! touch /file /tmp/file /var/tmp/file /dev/shm/file {root}/file 2> /dev/null
        touch {root}/output/file && rm {root}/output/file
        exec "$@\""""
    settings = {"env": {**os.environ, "HOME": "/nowhere"}, "cwd": "/"}
    ended = run(COMBINED, before=namespace(script), package=package, settings=settings).complete()
    assert ended.status == 0, ended.stderr
    assert "4 of 4 passes" in ended.last_line
    assert "Read-only" not in ended.stderr  # nothing else wanted to write


def test_a_log_that_cannot_be_written(run: Runs) -> None:
    ended = run(SEGMENTATION, options=QUICK[SEGMENTATION.name], log="/dev/full").complete()
    assert ended.status == 0
    assert ended.files


# Limits


def test_the_platforms_memory_limit(run: Runs) -> None:
    """Limit the process to 15 of the platform's 16 GB."""
    ended = run(COMBINED, limits={"RLIMIT_DATA": 15 * 2**30}).complete()
    assert ended.status == 0, ended.stderr
    assert "4 of 4 passes" in ended.last_line


# Clocks


def test_a_wall_clock_that_jumps(run: Runs) -> None:
    """Jump a day ahead in the first pass and ten years back in the second: every planned pass runs once."""
    jump = "[setattr(time, name, lambda: {}) for name in ('time', 'time_ns')]"
    ended = run(
        COMBINED,
        f"run algorithm.network.tiles:_compute_tile_logits 3 {jump.format('1.9e9')}",
        f"run algorithm.network.tiles:_compute_tile_logits 11 {jump.format('1.4e9')}",
    ).complete()
    assert ended.status == 0, ended.stderr
    assert "4 of 4 passes" in ended.last_line
    left_s, limit_s = ended.last_line.split(", ")[-1].removesuffix(" s left").split(" s of ")
    assert float(left_s) > float(limit_s) - 200
