"""The examples of docs/research.md about evaluation run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "research.md"


def test_the_examples_run(tmp_path, monkeypatch, capsys):
    """Check the printed values: 10 columns shifted by one have a DSC of 9/10, and 500 voxels of 3 mm3 are 1.5 ml."""
    section = PAGE.read_text().split("## Evaluate and rank")[1].split("\n## ")[0]
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for code in re.findall(r"```python\n(.*?)```", section, re.DOTALL):
        exec(compile(code, str(PAGE), "exec"), names)
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "GTVp DSC 0.90, HD95 1.0 mm, 1.5 ml"
    assert shown[1] == "0 missed nodes"
    # Comparable pairs: P1 with three, P2 with two; P1 is ranked below P2 and P4.
    assert shown[2].startswith("C-index 0.60 [")
    assert shown[3] == "('first', 'second') 2"
