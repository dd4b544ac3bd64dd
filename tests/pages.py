"""Shell commands of README.md and of the guide, block by block, as a reader pastes them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# The reader's own data: a release of the challenge, a training on it, packages, teams' answers.
_OWN_DATA = re.compile(r"\b(RELEASE|WORK|RESULTS|PACKAGE|TEAMS|MASKS|REFERENCE|OUT|CT\.nii\.gz)\b")
_COMMAND = re.compile(r"^(export|scripts/|hecktor|docker|mkdir|python|[A-Z]+=)", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """Commands between two fences, with the heading of their section."""

    heading: str
    text: str

    @property
    def needs_own_data(self) -> bool:
        return _OWN_DATA.search(self.code) is not None

    @property
    def needs_gpu(self) -> bool:
        return any(word in self.code for word in ("--gpus", "--cuda", ":cuda"))

    @property
    def runs_tests(self) -> bool:
        return "scripts/test" in self.code

    @property
    def code(self) -> str:
        """Return the commands without their comments."""
        return re.sub(r"(^|\s)#.*", "", self.text)


def list_shell_blocks(page: str) -> list[Block]:
    """Return the blocks of shell commands of a page, such as `docs/enter.md`, in order."""
    blocks, heading = [], ""
    pattern = r"^## ([^\n]*)$|^```(?:bash)?\n(.*?)^```"
    for match in re.finditer(pattern, (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        if match[1]:
            heading = match[1]
        elif _COMMAND.match(match[2]):
            blocks.append(Block(heading, match[2]))
    return blocks
