"""Disks that are full, folders that cannot be written, and logs that cannot be written."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.algorithm.edition import COMBINED, RFS, SEGMENTATION
from tests.faults.conftest import CLINICAL, THRESHOLD, CheckFault, Fault, Run, name_of, use_namespace

ONE_PASS: Final = ("--passes", "1")


def fill_disk(run: Run) -> None:
    """Mount a disk of 64 KiB that is full to the last block, and look at its files afterwards."""
    disk, output = run.case.root / "disk", run.case.output
    script = f"""
        mkdir {disk} && mount -t tmpfs -o size=64k tmpfs {disk} && mkdir {disk}/output
        head -c 65536 /dev/zero > {disk}/filler
        mount --bind {disk}/output {output}
        status=0; "$@" || status=$?
        umount {output} && cp -a {disk}/output/. {output}
        exit $status"""
    use_namespace(run, script)


def write_protect(run: Run) -> None:
    output = run.case.output
    use_namespace(run, f'mount --bind {output} {output} && mount -o remount,bind,ro {output} && exec "$@"')


def write_protect_all_else(run: Run) -> None:
    """Make only the output writable: the root file system and an empty /tmp are read-only, and there is no home.

    Python and this project are mounted again because they may lie in /tmp.
    """
    root, package = run.case.root, run.case.root / "package"
    shutil.copytree(run.package, package)
    run.package, run.environment = package, {"HOME": "/nowhere", "PYTHONDONTWRITEBYTECODE": ""}
    folders = sorted({Path(sys.prefix), Path(sys.base_prefix), Path(__file__).parents[2]})
    move_aside = "\n".join(f"mkdir /mnt/{n} && mount --bind {folder} /mnt/{n}" for n, folder in enumerate(folders))
    move_back = "\n".join(f"mkdir -p {folder} && mount --bind /mnt/{n} {folder}" for n, folder in enumerate(folders))
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
    use_namespace(run, script)


def limit_file_size(size: int) -> Callable[[Run], None]:
    return lambda run: run.limits.update(RLIMIT_FSIZE=size)


def fill_log(run: Run) -> None:
    run.log = "/dev/full"


TOO_LARGE: Final = "cannot be written (File too large)"
READ_ONLY: Final = "cannot be written (Read-only file system)"
FAULTS: Final = [
    Fault(
        "full disk", COMBINED, (), "no space left on the disk, expected free space in ", 1, ONE_PASS, prepare=fill_disk
    ),
    Fault("an answer's file too large", RFS, (), TOO_LARGE, 1, CLINICAL, prepare=limit_file_size(2)),
    Fault("the mask's file too large", COMBINED, (), TOO_LARGE, 1, ONE_PASS, prepare=limit_file_size(300)),
    Fault("read-only output", COMBINED, (), READ_ONLY, 1, ONE_PASS, prepare=write_protect),
    Fault("full log", SEGMENTATION, options=THRESHOLD, prepare=fill_log),
]
# Nothing but the output wants to be written.
PROTECTED: Final = Fault(
    "all else is read-only", COMBINED, (), "4 of 4 passes", prepare=write_protect_all_else, hides=["Read-only"]
)


@pytest.mark.parametrize("fault", [*FAULTS, pytest.param(PROTECTED, marks=pytest.mark.slow)], ids=name_of)
def test_a_file_that_cannot_be_written(check_fault: CheckFault, fault: Fault) -> None:
    check_fault(fault)
