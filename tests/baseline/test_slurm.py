"""The example for clusters: what it submits, and which commands its tasks run, with stubs for Slurm and `hecktor`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "slurm-train.sh"
STUB = '#!/bin/sh\necho "$(basename "$0") $*" >>"$TOLD"\n'
WORK = "ROOT/work"


class Cluster:
    """Stubs that note how they were called; `hecktor train fold --list` prints `remaining`."""

    def __init__(self, root: Path, remaining: str) -> None:
        self.root, self.told = root, root / "told"
        (root / "remaining").write_text(remaining)
        for name, ending in (("sbatch", "echo 41"), ("hecktor", f'case "$*" in *--list*) cat {root}/remaining;; esac')):
            path = root / "bin" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(STUB + ending + "\n")
            path.chmod(0o755)

    def run(self, *arguments: str, **settings: str) -> list[str]:
        """Run the script with no settings but these; returns the calls it made, with the folder shown as `ROOT`."""
        environment = {
            "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}", "TOLD": str(self.told),
            "WORK": str(self.root / "work"), "PACKAGE": str(self.root / "package"), **settings,
        }  # fmt: skip
        self.told.unlink(missing_ok=True)
        subprocess.run(["bash", str(SCRIPT), *arguments], env=environment, check=True, timeout=60)
        return self.told.read_text().replace(str(self.root), "ROOT").replace(str(SCRIPT), "SCRIPT").splitlines()


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path, "0 unet\n2 unet\n1 segresnet\n")


def test_three_unfinished_networks(cluster: Cluster) -> None:
    """An array of three, and what comes after all of them; then a task trains the network of its own line."""
    listed, array, finish = cluster.run(GPUS="2", CPUS="8", SBATCH_EXTRA="--partition=gpu --account=me")
    assert listed == "hecktor train fold --work ROOT/work --list"
    logs = f"{WORK}/slurm"
    common = f"--cpus-per-task=8 --mem=48G --time=48:00:00 --gres=gpu:{{}} --output={logs}/%x-%A-%a.log"
    common = f"sbatch --parsable --export=ALL {common} --partition=gpu --account=me"
    (kept,) = (cluster.root / "work" / "slurm").iterdir()
    task = f"SCRIPT network {logs}/{kept.name}"
    assert array == common.format(2) + f" --job-name=hecktor-train --array=0-2 --requeue {task}"
    dependency = "--dependency=afterok:41 --kill-on-invalid-dep=yes"
    assert finish == common.format(1) + f" --job-name=hecktor-finish {dependency} SCRIPT finish"
    # By now one is done, and the rest was submitted once more: the tasks keep to the list as it was.
    (cluster.root / "remaining").write_text("2 unet\n1 segresnet\n")
    cluster.run()
    assert len(list(kept.parent.iterdir())) == 2
    assert cluster.run("network", str(kept), SLURM_ARRAY_TASK_ID="2", CPUS="8") == [
        "hecktor train fold --work ROOT/work --fold 1 --backbone segresnet --device cuda --gpus 1 --jobs 8"
    ]


def test_no_unfinished_networks(tmp_path: Path) -> None:
    calls = Cluster(tmp_path, "").run()
    assert len(calls) == 2
    assert calls[1].endswith("--job-name=hecktor-finish SCRIPT finish")


def test_steps_after_the_networks(cluster: Cluster) -> None:
    assert cluster.run("finish", CPUS="4") == [
        "hecktor train postprocess --work ROOT/work --device cuda --jobs 4",
        "hecktor train heads --work ROOT/work --device cuda --jobs 4",
        "hecktor train report --work ROOT/work --jobs 4",
        "hecktor train export --work ROOT/work --jobs 4 --output ROOT/package",
    ]
