"""nnU-Net's own commands are not in the environment of `scripts/setup`, where they cannot train."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = "docs/own-model.md"
PIN = re.search(r"^nnunetv2==\S+$", (ROOT / "requirements/algorithm.txt").read_text(), re.MULTILINE)


def test_set_up_installs_no_command_that_cannot_train() -> None:
    """An installed command would need timm; `scripts/setup` removes the commands after the installation."""
    assert "rm -f .venv/bin/nnUNetv2_*\n" in (ROOT / "scripts" / "setup").read_text()
    assert list((ROOT / ".venv" / "bin").glob("nnUNetv2_*")) == []


def test_the_page_makes_an_environment_with_the_version_of_this_project() -> None:
    assert PIN is not None
    assert f"nnunet/bin/pip install {PIN[0]}\n" in (ROOT / PAGE).read_text()
