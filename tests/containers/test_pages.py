"""Run the blocks of README and guide as a reader pastes them: in new shells, from a fresh clone, in their order.

Blocks that need the reader's own data or a card are omitted, and the block that runs the tests. Setting up, building
images and the guide's trial training take an hour on two cores, longer than CI has, so these tests run on request.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from rehearsal.runners.containers import ContainerEngine
from tests.pages import ROOT, list_shell_blocks

pytestmark = [
    pytest.mark.container,
    pytest.mark.slow,
    pytest.mark.timeout(3 * 3600),
    pytest.mark.skipif("HECKTOR_RUN_PAGES" not in os.environ, reason="takes an hour: set HECKTOR_RUN_PAGES=1"),
]
# Files that the blocks of a page write.
WRITTEN = {
    "README.md": [
        "out/answer/images/tumor-lymph-node-segmentation/output.mha",
        "out/rehearsal/metrics.json",
        "dist/hecktor-segmentation_*.tar.gz",
    ],
    "docs/enter.md": [
        "out/answer/images/tumor-lymph-node-segmentation/output.mha",
        "out/scores/metrics.json",
        "out/trial/training/report/index.html",
        "out/trial/upload/README.md",
        "out/trial/model.tar.gz",
        "out/upload/README.md",
        "out/board/leaderboard.json",
    ],
}


@pytest.mark.parametrize("page", WRITTEN)
def test_each_block_runs_as_pasted(engine: ContainerEngine, page: str, tmp_path: Path) -> None:
    clone = tmp_path / "hecktor"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    omitted = ("PYTHONPATH", "VIRTUAL_ENV", "CASE")
    environment = {name: value for name, value in os.environ.items() if name not in omitted}
    # Without an environment of this tree.
    environment["PATH"] = ":".join(part for part in environment["PATH"].split(":") if ".venv" not in part)
    blocks = [b for b in list_shell_blocks(page) if not (b.needs_own_data or b.needs_gpu or b.runs_tests)]
    assert blocks
    for block in blocks:
        command = ["bash", "-e", "-o", "pipefail", "-c", block.text]
        done = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{block.text}\n{done.stdout[-1500:]}\n{done.stderr[-3000:]}"
    assert [name for name in WRITTEN[page] if not list(clone.glob(name))] == []
