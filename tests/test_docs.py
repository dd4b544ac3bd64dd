"""Links and commands of README, CONTRIBUTING and docs."""

from __future__ import annotations

import importlib.util
import io
import re
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import cache
from pathlib import Path

import pytest

from hecktor.cli import COMMANDS, load_command
from tests.functions_page import PAGE as FUNCTIONS_PAGE
from tests.functions_page import build_page
from tests.pages import list_shell_blocks

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
ALL_PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES, *sorted(ROOT.glob("examples/*/README.md"))]
WITH_STEPS = ("train", "study", "convert")
# Packages whose modules the steps of a section of the architecture name, without the package or with it.
ROOMS = {"Follow one CT": "algorithm", "Follow one mask": "evaluation", "Follow one training": "baseline"}

every_page = pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


def list_code_lines(text: str) -> Iterator[str]:
    """Yield each command line of the blocks and of inline code, continued lines joined, without comments."""
    blocks = re.findall(r"^```(?:bash)?\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    indented = re.findall(r"^ {4}(?=hecktor )(.*(?:\n {8,}.*)*)", text, flags=re.MULTILINE)
    inline = re.findall(r"`([^`\n]+)`", text)
    for part in (*blocks, *(line.replace("\n", " ") for line in indented), *inline):
        for line in part.replace("\\\n", " ").replace("\\|", "|").splitlines():
            yield re.sub(r"\s#.*", "", line)


def find_commands(text: str, start: str) -> Iterator[str]:
    """Yield the commands that begin with `start`, a regular expression."""
    for line in list_code_lines(text):
        yield from re.findall(rf"(?:^|[\s$]){start}[^;&]*", line)


@cache
def list_options(*words: str) -> frozenset[str]:
    """Return the options in the help of a command, such as `train heads`; empty if the command does not exist."""
    if words[0] not in COMMANDS:
        return frozenset()
    shown = io.StringIO()
    with redirect_stdout(shown), redirect_stderr(io.StringIO()), suppress(SystemExit):
        load_command(words[0])([*words[1:], "--help"])
    return frozenset(re.findall(r"--[a-z][a-z-]*", shown.getvalue()))


def list_anchors(text: str) -> set[str]:
    """Return GitHub's anchors of a page's headings."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()) for title in titles)
    return {title.replace(" ", "-") for title in plain}


@every_page
def test_every_block_ends(page: Path) -> None:
    assert page.read_text().count("\n```") % 2 == 0


@every_page
def test_every_table_has_a_header(page: Path) -> None:
    """Empty lines inside a table end it, and the rows below are shown as text."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    tables = re.findall(r"^\|.*\n(?:\|.*\n)*", text, flags=re.MULTILINE)
    assert [table for table in tables if not re.match(r"\|.*\n\|[-|]+\|\n", table)] == []


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text()):
        name, _, anchor = link.partition("#")
        target = page if not name else page.parent / name
        if not target.exists() or (anchor and anchor not in list_anchors(target.read_text())):
            broken.append(link)
    assert broken == []


def test_pages_that_code_names_exist() -> None:
    """Messages, docstrings and scripts name pages such as `docs/organise.md#start-from-a-release`."""
    rooms = (*ROOMS.values(), "contract", "convert", "hecktor", "rehearsal", "benchmarks", "examples", "tests")
    sources = [*(ROOT / "scripts").glob("*[!_]"), *(path for room in rooms for path in (ROOT / room).rglob("*.py"))]
    named = {place for path in sources for place in re.findall(r"docs/[a-z-]+\.md(?:#[\w-]+)?", path.read_text())}
    broken = []
    for place in sorted(named):
        name, _, anchor = place.partition("#")
        if not (ROOT / name).exists() or (anchor and anchor not in list_anchors((ROOT / name).read_text())):
            broken.append(place)
    assert broken == []


@every_page
def test_commands_and_their_options_exist(page: Path) -> None:
    wrong = []
    for line in find_commands(page.read_text(), "hecktor (?=[a-z])"):
        words = line.split()[1:]
        is_step = words[0] in WITH_STEPS and len(words) > 1 and re.fullmatch(r"[a-z-]+", words[1])
        known = list_options(*words[: 2 if is_step else 1])
        unknown = [name for name in re.findall(r"(?<![\w-])--[a-z][a-z-]*", line) if name not in known]
        if unknown or not known:
            wrong.append((line, unknown))
    assert wrong == []


@every_page
def test_scripts_and_modules_exist(page: Path) -> None:
    text = page.read_text()
    scripts = {line.split()[0] for line in find_commands(text, r"scripts/[a-z]")}
    assert [name for name in sorted(scripts) if not (ROOT / name.strip()).exists()] == []
    modules = {
        line.split()[2] for line in find_commands(text, r"python -m (?=algorithm|benchmarks|evaluation|baseline)")
    }
    assert [name for name in sorted(modules) if importlib.util.find_spec(name) is None] == []


def exists(path: str) -> bool:
    """Return whether a dotted name is a module or package of the source tree, or a function or class in one."""
    place, _, name = path.rpartition(".")
    whole, module = ROOT / path.replace(".", "/"), ROOT / f"{place.replace('.', '/')}.py"
    if whole.is_dir() or whole.with_suffix(".py").is_file():
        return True
    return module.is_file() and bool(re.search(rf"^(?:def|class) {name}\b", module.read_text(), re.MULTILINE))


@pytest.mark.parametrize("section", ROOMS)
def test_the_architecture_names_existing_code(section: str) -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    steps = page.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    names = re.findall(r"`([a-z_]+(?:\.\w+)+)`", steps)
    assert len(names) > 5
    assert [name for name in names if not (exists(f"{ROOMS[section]}.{name}") or exists(name))] == []


def test_the_page_of_functions_is_current() -> None:
    assert FUNCTIONS_PAGE.read_text(encoding="utf-8") == build_page(), "run python -m tests.functions_page"


PAGES_TO_PASTE = ("README.md", "docs/enter.md")


@pytest.mark.parametrize("page", PAGES_TO_PASTE)
def test_a_block_runs_in_a_new_shell(page: str) -> None:
    """`hecktor` is on PATH, and every variable is set and every image is built in the block or in an earlier one."""
    images: set[str] = set()
    for block in list_shell_blocks(page):
        code = block.code.replace("\\\n", " ")
        for name in re.findall(r"scripts/build ([^\n]*)", code):
            tag = "cuda" if "--cuda" in name else "latest"
            images |= {f"hecktor-{kind}:{tag}" for kind in name.split() if not kind.startswith("-")}
        if block.needs_own_data and page == "README.md":
            continue  # an overview, which names a command of each kind
        if re.search(r"^(hecktor|python) ", code, re.MULTILINE):
            assert '.venv/bin:$PATH"' in code, block.text
        variables = set(re.findall(r"\$([A-Z]+)\b", code)) - {"PWD", "PATH"}
        assert [name for name in sorted(variables) if not re.search(rf"(^|\s){name}=", code)] == [], block.text
        used = {name if ":" in name else f"{name}:latest" for name in re.findall(r"[ =](hecktor-[a-z0-9:-]+)", code)}
        assert used <= images, block.text
