"""Tests of the lines for Slurm of docs/training.md: what they submit, and which commands the tasks run, with stubs."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "training.md"
# `sbatch` keeps the script of each job by its name, and answers with a number and a cluster.
STUBS = {
    "sbatch": '''echo "sbatch $*" | head -1 >>"$ROOT/told"; for last; do :; done
name=$(echo "$*" | sed -n "1s/.*--job-name=hecktor-\\([a-z]*\\).*/\\1/p"); echo "$last" >"$ROOT/$name.sh"; echo "41;cluster"''',
    "hecktor": """echo "hecktor $*" >>"$ROOT/told"; case "$*" in *--list*) printf "0 unet\\n2 segresnet\\n";; esac""",
}


def test_the_lines_for_slurm(tmp_path: Path) -> None:
    """Two networks remain: an array of two, then the later steps. The second task trains the second network."""
    for name, content in STUBS.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{content}\n")
        (tmp_path / name).chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "ROOT": str(tmp_path), "WORK": str(work), "PACKAGE": "P"}

    def run_script(script: str, **more: str) -> list[str]:
        (tmp_path / "told").write_text("")
        subprocess.run(["sh", "-euc", script], env=environment | more, check=True, timeout=60)
        return (tmp_path / "told").read_text().replace(str(work), "WORK").splitlines()

    (lines,) = re.findall(r"^```bash\n(list=.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    listed, array, finish = run_script(lines)
    assert listed == "hecktor train fold --work WORK --list"
    assert "--array=1-2 --requeue" in array
    assert "--dependency=afterok:41 --kill-on-invalid-dep=yes" in finish
    (networks,) = work.iterdir()
    assert run_script((tmp_path / "train.sh").read_text(), SLURM_ARRAY_TASK_ID="2", list=str(networks)) == [
        "hecktor train fold --work WORK --fold 2 --backbone segresnet --device cuda --jobs 12"
    ]
    steps = run_script((tmp_path / "finish.sh").read_text())
    assert [line.split()[2] for line in steps] == ["postprocess", "heads", "report", "export"]
    assert steps[-1] == "hecktor train export --work WORK --jobs 12 --output P"
