"""Without `--cases` a page holds nothing about a single patient, in its text or in its data."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from contract.errors import HecktorError, OutputError
from contract.images.volumes import write_mask
from evaluation.api import evaluate
from evaluation.ranking.cli import main as rank
from reporting.report.cli import main as report
from reporting.report.page import WITH_CASES
from tests.evaluation.conftest import comparing_here
from tests.evaluation.staging import GRID
from tests.evaluation.tables import write_table

# Two have a centre in their name; the warning about the others names them.
CASES = ("CHUM-8701", "CHUP-8702", *(f"Quilldriver{number}" for number in range(1, 9)))
DAYS = (3137, 2293, 1747, 4139, 2683, 911, 3541, 1597, 2939, 4421)
TASKS = {"masks": ("hecktor2025", "1"), "risks": ("hecktor2025", "2"), "classes": ("hecktor2025", "3")}
KINDS = (*TASKS, "four_answers")


def make_mask(number: int, shift: int) -> np.ndarray:
    mask = np.zeros(GRID.array_shape, np.uint8)
    mask[2:4, 2:4, 2 + shift : 4 + number % 3 + shift] = 1
    mask[6, 6, 4:8] = 2
    return mask


def write_masks(folder: Path, shift: int, cases: tuple[str, ...]) -> None:
    for number, case in enumerate(cases):
        write_mask(folder / f"{case}.mha", make_mask(number, shift), GRID)


def write_rows(path: Path, heads: str, row: Callable[[int], object], cases: tuple[str, ...] = CASES) -> None:
    write_table(path, heads, {case: row(number) for number, case in enumerate(cases)})


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write a leaderboard of two teams by kind; the second team lacks a case and answers one that does not exist."""
    root = tmp_path_factory.mktemp("results")
    truth = root / "truth"
    write_masks(truth / "masks", 0, CASES)
    write_rows(truth / "risks.csv", "Relapse,RFS", lambda n: f"{n % 2},{DAYS[n]}")
    write_rows(truth / "classes.csv", "HPV Status", lambda n: int(n % 3 == 0))
    write_masks(truth / "four", 0, CASES)
    write_rows(
        truth / "four" / "t.csv",
        "T-stage,N-stage,Relapse,RFS",
        lambda n: f"T{1 + n % 4},N{n % 4},{n % 2},{DAYS[n]}",
    )
    sources = {kind: next(truth.glob(f"{kind.removesuffix('_answers')}*")) for kind in KINDS}
    for place, team in enumerate(("Ahead", "Behind")):
        cases = CASES[place:] if place == 0 else (*CASES[1:], "Madeupname1")
        own = root / team
        write_masks(own / "masks", place, cases)
        write_rows(own / "risks.csv", "risk", lambda n, place=place: 0.25 * (n * (3 + place) % 7), cases)
        write_rows(own / "classes.csv", "hpv,probability", lambda n: f"{n % 2},0.{6 if n % 2 else 4}", cases)
        write_masks(own / "four", place, cases)
        write_rows(own / "four" / "t.csv", "T-stage,N-stage,RFS", lambda n: f"T{1 + n % 3},N{n % 3},{n % 5}", cases)
        for kind in KINDS:
            edition, task = TASKS.get(kind, ("hecktor2026", None))
            options = {"edition": edition, "task": task, "output": root / kind / team, "bootstraps": 20}
            with comparing_here():
                evaluate(sources[kind], predictions=own / sources[kind].name, **options)
    for kind in KINDS:
        files = [str(root / kind / team / "metrics.json") for team in ("Ahead", "Behind")]
        assert rank([*files, "--bootstraps", "20", "--output", str(root / kind)]) == 0
    return {kind: root / kind for kind in KINDS}


def write_page(folder: Path, output: Path, *more: str) -> str:
    assert report(["--results", str(folder), "--output", str(output), *more]) == 0
    return output.read_text(encoding="utf-8")


def find_patient_data(text: str) -> set[str]:
    """Return names, days and years of patients in a page, and the parts that hold their outcomes; programs are left out."""
    signs = [*CASES, "Madeupname1", *map(str, DAYS), *(f"{days / 365.25:.4g}" for days in DAYS)]
    signs += [f'id="{name}' for name in ("by-case", "page-cases")]
    text = re.sub(r'<script(?: type="module")?>.*?</script>|<style>.*?</style>', "", text, flags=re.DOTALL)
    signs_in_text = {sign for sign in signs if re.search(rf"(?<![\d.]){re.escape(sign)}(?!\d)", text)}
    parts = "survival|confusion|numbers-at-risk|by-case|failed-cases|dsc-and-volume"
    return signs_in_text | set(re.findall(rf'id="task\d-(?:[a-z_]+-)*(?:{parts})[a-z-]*"', text))


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_without_cases_shows_nothing_of_a_patient(results, tmp_path: Path, kind: str) -> None:
    folder, figures = results[kind], tmp_path / "figures"
    is_drawn = kind == "risks"  # drawing is slow, and figures hold the data of the page
    text = write_page(folder, tmp_path / "page.html", *(["--figures", str(figures)] if is_drawn else []))
    assert find_patient_data(text) == set()
    assert WITH_CASES not in text
    assert "Behind: 1 case without a prediction" in text
    assert "1 warning that names patients" in text  # of the centres that are not known
    # The coordinates of a drawing are numbers, too, so only its texts are read. The PDF is drawn from the same rows.
    drawings = [path.read_text(encoding="utf-8") for path in figures.rglob("*.svg")]
    data = [text for drawing in drawings for text in re.findall(r"<text[^>]*>([^<]*)</text>", drawing)]
    data += [path.read_text(encoding="utf-8") for path in figures.rglob("*.*") if path.suffix in (".json", ".csv")]
    assert bool(drawings) == is_drawn
    assert find_patient_data("\n".join(data)) == set()
    # The ranking, its stability and its tests are there, and the centres' two patients are groups that are too small.
    assert 'id="task1' in text or 'id="task2' in text or 'id="task3' in text
    assert "Pairwise tests" in text
    assert "Stability of the ranks" in text
    # With --cases the same signs are in the page, so the search would have found them.
    full = write_page(folder, tmp_path / "full.html", "--cases")
    assert full.count(WITH_CASES) == 1
    assert full.index(WITH_CASES) < full.index("<nav")
    assert {*CASES, 'id="by-case', 'id="page-cases'} <= find_patient_data(full)
    if kind in ("risks", "four_answers"):
        assert set(map(str, DAYS)) <= find_patient_data(full)


@pytest.mark.parametrize("option", ["--cohort", "--viewer"])
def test_pictures_of_patients_need_the_flag(results, tmp_path: Path, option: str) -> None:
    with pytest.raises(HecktorError, match=f"^{option}: "):
        report(["--results", str(results["masks"]), "--output", str(tmp_path / "page.html"), option, str(tmp_path)])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["masks", "four_answers"])
def test_only_a_leaderboard_makes_a_page(results, tmp_path: Path, kind: str) -> None:
    shutil.copy(results[kind] / "leaderboard.json", tmp_path)
    board = json.loads((tmp_path / "leaderboard.json").read_text())
    text = write_page(tmp_path, tmp_path / "page.html")
    assert find_patient_data(text) == set()
    assert "made only from leaderboard.json" in text
    assert list_teams(text) == [entry["team"] for entry in board["teams"]]
    assert "Pairwise tests" in text
    (tmp_path / "Ahead").mkdir()
    shutil.copy(results[kind] / "Ahead" / "metrics.json", tmp_path / "Ahead")
    with pytest.raises(HecktorError, match="'Behind' without its metrics"):
        write_page(tmp_path, tmp_path / "page.html")


def test_printed_values_make_a_page(tmp_path: Path) -> None:
    (tmp_path / "printed.csv").write_text("team,c_index\nOne,0.61\nTwo,0.68\n")
    arguments = ["--task", "2", "--table", str(tmp_path / "printed.csv"), "--output", str(tmp_path)]
    assert rank(arguments) == 0
    text = write_page(tmp_path, tmp_path / "page.html")
    assert list_teams(text) == ["Two", "One"]
    assert "Cases scored" not in text


def list_teams(text: str) -> list[str]:
    """Return the teams of the first leaderboard, from the top."""
    body = text.partition("<tbody>")[2].partition("</tbody>")[0]
    return re.findall(r'data-key="team" data-value="([^"]+)"', body)


def test_a_page_of_another_program_is_not_replaced(results, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "index.html").write_text("<html>my site</html>")
    with pytest.raises(OutputError, match="of another program"):
        report(["--results", str(results["masks"]), "--output", str(site)])
    assert (site / "index.html").read_text() == "<html>my site</html>"
    (site / "index.html").unlink()
    assert report(["--results", str(results["masks"]), "--output", str(site)]) == 0
    assert report(["--results", str(results["masks"]), "--output", str(site)]) == 0  # its own page
    (site / "index_files").mkdir()
    (site / "index_files" / "holiday.png").write_bytes(b"png")
    with pytest.raises(OutputError, match="holiday"):
        report(["--results", str(results["masks"]), "--output", str(site)])


def test_a_report_that_is_refused_leaves_no_earlier_page(results, tmp_path: Path) -> None:
    """Neither the page nor its pictures are left, since both belong to other results."""
    page, pictures = tmp_path / "page.html", tmp_path / "page_files"
    write_page(results["masks"], page)
    for file in (pictures / "P1.jpg", tmp_path / "other_files" / "holiday.jpg"):
        file.parent.mkdir()
        file.write_bytes(b"jpeg")
    for output in (page, tmp_path / "other.html"):
        with pytest.raises(HecktorError, match=r"^--results: no such file or folder"):
            report(["--results", str(tmp_path / "absent"), "--output", str(output)])
    # A user may name a new page like a folder of photographs.
    assert list(tmp_path.iterdir()) == [tmp_path / "other_files"]
    assert (tmp_path / "other_files" / "holiday.jpg").is_file()
