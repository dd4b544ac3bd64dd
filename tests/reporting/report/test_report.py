"""The report page, from a toy cohort to HTML."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser

import numpy as np
import pytest

from contract.errors import HecktorError, OutputError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, write_mask
from contract.io.files import write_files
from evaluation.ranking.cli import main as rank
from reporting.report import pictures
from reporting.report.cli import main as report
from tests.evaluation.conftest import Phase, WorkerDeathError, comparing_here
from tests.evaluation.tasks import HPV, RFS, SEGMENTATION
from tests.reporting.cohorts import write_case

GRID = Geometry((40, 40, 20), (3.0, 3.0, 5.0), (-60.0, -60.0, -50.0))
PET_GRID = Geometry((30, 30, 25), (4.0, 4.0, 4.0), (-60.0, -60.0, -50.0))
TEAMS = ("ours", "<b>bold")


def draw_mask(case, shift=0):
    mask = np.zeros(GRID.array_shape, np.uint8)
    if case != "C-3":
        mask[8:12, 15:20, 15 + shift : 20 + shift] = 1
    if case == "A-1":
        mask[4:7, 22:25, 8:11] = 2
    return mask


@pytest.fixture
def demo(demo_cohort, tmp_path):
    """Copy the cohort and its results, so that a test may change them."""
    return shutil.copytree(demo_cohort, tmp_path, dirs_exist_ok=True, symlinks=True)


@pytest.fixture(scope="module")
def demo_cohort(tmp_path_factory):
    """Write three patients (one without lesions), two teams, three tasks; the second team lacks one mask."""
    with comparing_here():
        return make_demo(tmp_path_factory.mktemp("made"))


@pytest.fixture(scope="module")
def demo_page(demo_cohort, tmp_path_factory):
    """Write the cohort with its page and pictures."""
    folder = shutil.copytree(demo_cohort, tmp_path_factory.mktemp("built"), dirs_exist_ok=True)
    with comparing_here():
        build(folder, "--note", "toys & nothing else")
    return folder


def make_demo(tmp_path):
    cases = ("A-1", "B-2", "C-3")
    for task in (SEGMENTATION, RFS, HPV):
        for team in TEAMS:
            phase = Phase(tmp_path / f"{task.name}-{TEAMS.index(team)}", task)
            run_team(phase, team, cases)
            out = tmp_path / "demo" / f"task{task.number}" / team
            out.parent.mkdir(parents=True, exist_ok=True)
            phase.output_dir.rename(out)
        folder = tmp_path / "demo" / f"task{task.number}"
        files = [str(folder / team / "metrics.json") for team in TEAMS]
        rank(["--task", task.name, *files, "--output", str(folder)])
    rng = np.random.default_rng(0)
    for case in cases:
        ct = Volume(rng.normal(0, 50, GRID.array_shape).astype(np.int16), GRID)
        pet = Volume(rng.gamma(2, 1, PET_GRID.array_shape).astype(np.float32), PET_GRID)
        write_case(tmp_path / "cohort", case, Volume(draw_mask(case), GRID), pet, ct)
        write_mask(tmp_path / "demo" / "task1" / "ours" / "predictions" / f"{case}.mha", draw_mask(case, 1), GRID)
    return tmp_path


def run_team(phase, team, cases):
    phase.add_truth_table("PatientID,Relapse,RFS,HPV Status\nA-1,1,100,1\nB-2,0,900,0\nC-3,1,400,1\n")
    for number, case in enumerate(cases):
        if phase.task is SEGMENTATION:
            phase.add_truth_mask(case, draw_mask(case), GRID)
            phase.add_mask(case, draw_mask(case, 1 + TEAMS.index(team)), GRID)
        elif not (team == "ours" and case == "C-3"):
            phase.add_value(case, json.dumps(3.0 - number if phase.task is RFS else number == 0))
    phase.run()


def build(demo, *more):
    arguments = ["--results", str(demo / "demo"), "--cohort", str(demo / "cohort"), "--output", str(demo / "r.html")]
    assert report([*arguments, "--cases", "--workers", "0", *more]) == 0
    return (demo / "r.html").read_text()


class Balanced(HTMLParser):
    """Fails if an element is closed that is not open; collects addresses and the ids of elements."""

    VOID = frozenset({"meta", "img", "br", "input"})

    def __init__(self):
        super().__init__()
        self.open: list[str] = []
        self.sources: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.sources += [value for key, value in attrs if key in {"src", "href"} and value]
        self.ids += [value for key, value in attrs if key == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_the_page_is_whole_and_refers_only_to_its_pictures(demo_page):
    text = (demo_page / "r.html").read_text()
    page = Balanced()
    page.feed(text)
    assert page.open == []
    outside = {source for source in page.sources if not source.startswith("#")}
    assert outside == {"r_files/A-1.jpg", "r_files/B-2.jpg", "r_files/C-3.jpg"}
    assert len(page.ids) == len(set(page.ids))
    anchors = {source[1:] for source in page.sources if source.startswith("#")}
    assert anchors <= set(page.ids)
    style = text[text.index("<style>") : text.index("</style>")]
    assert not re.search(r"@import|url\(", style)
    assert "toys &amp; nothing else" in text
    assert "need JavaScript" in text
    figures = ("Survival by predicted risk", "Confusion matrices", "Stability of the ranks")
    for words in ("Task 1: GTVp", "Task 2: Recurrence", "Task 3: HPV", "Rank by flat Borda", *figures):
        assert words in text
    assert "&lt;b&gt;bold" in text
    assert "<b>bold" not in text
    assert "Pairwise tests" not in text  # three patients have no p
    assert text.count('class="card"') == 3
    assert "GTVp 4.5 ml · GTVn 1.2 ml · GTVn lesions 1 · Recurrence yes · Follow-up 100 days" in text
    assert "ours: 1 case without a prediction<" in text


@pytest.mark.parametrize("kind", ["file", "link", "dangling link"])
def test_no_file_or_link_is_replaced_by_pictures(demo, kind, capsys):
    """Files and links at the place of the folder of pictures stay, and so do the targets of links."""
    place, elsewhere = demo / "p_files", demo / "elsewhere"
    if kind == "file":
        place.write_text("notes")
    else:
        place.symlink_to(elsewhere)
        if kind == "link":
            elsewhere.mkdir()
    with pytest.raises(
        OutputError, match=f"found the {kind.split()[-1]} p_files in the place of the folder of pictures"
    ):
        build(demo, "--output", str(demo / "p.html"))
    assert place.read_text() == "notes" if kind == "file" else place.is_symlink()
    assert not elsewhere.exists() or list(elsewhere.iterdir()) == []
    assert not (demo / "p.html").exists()


def test_a_mask_that_ends_the_process_leaves_the_patient_on_the_page(demo, monkeypatch):
    """Pictures are then drawn again without predictions."""

    def read(request, team, path, reference, of=pictures._read_prediction):
        if path.name == "B-2.mha":
            raise WorkerDeathError
        return of(request, team, path, reference)

    monkeypatch.setattr(pictures, "_read_prediction", read)
    text = build(demo, "--max-patients", "2")
    assert 'id="case-B-2"' in text
    assert "the process that drew the predictions died" in text
    assert (demo / "r_files" / "B-2.jpg").is_file()


def test_masks_of_an_entry_without_a_rank_are_drawn(demo):
    """Masks of the unranked team are drawn; masks of another run are refused."""
    folder = demo / "demo" / "task1"
    files = {team: str(folder / team / "metrics.json") for team in TEAMS}
    unranked = ["--out-of-competition", f"withdrawn={files[TEAMS[1]]}:no paper"]
    rank(["--task", "1", files["ours"], *unranked, "--bootstraps", "9", "--output", str(folder)])
    for case in ("A-1", "B-2"):
        write_mask(demo / "own" / f"{case}.mha", draw_mask(case, 2 if case == "A-1" else 9), GRID)
    text = build(demo, "--masks", f"withdrawn={demo / 'own'}", "--max-patients", "2")
    assert '["withdrawn",["M' in (demo / "r_files" / "A-1.js").read_text().replace(" ", "")
    assert text.count("withdrawn: B-2.mha: ") == 0  # as many voxels as were scored


def test_one_folder_holds_the_masks_of_all_teams(demo):
    """Folders that belong to no team are named, empty ones refused."""
    parent, empty = demo / "all", demo / "empty"
    for folder in (parent, empty):
        folder.mkdir()
    (demo / "demo" / "task1" / "ours" / "predictions").rename(parent / "ours")
    build(demo, "--masks", str(parent), "--max-patients", "1")
    drawn = json.loads((demo / "r_files" / "A-1.js").read_text().partition("(")[2].rpartition(")")[0])
    assert [team for team, _ in drawn[1]] == ["ours", ""]
    (parent / "others").mkdir()
    for masks, message in (
        ([parent], "unknown team 'others'"),
        ([f"theirs={parent}"], "unknown team 'theirs'"),
        ([f"ours={demo / 'absent'}"], r"--masks: no such file or folder: .*/absent "),
        ([f"ours={empty}"], "--masks ours: no file of a case of the cohort, expected files of A-1, B-2"),
        ([f"ours={empty}", f"ours={demo}"], "--masks: team 'ours' twice"),
    ):
        with pytest.raises(HecktorError, match=message):
            build(demo, *(word for path in masks for word in ("--masks", str(path))))
    with pytest.raises(SystemExit):
        build(demo, "--masks", str(empty))
    with pytest.raises(HecktorError, match="--masks: found without --cohort, expected both"):
        report(["--results", str(demo), "--masks", f"ours={demo}", "--output", str(demo / "r.html")])


def test_pictures_and_contours_show_three_planes_of_each_lesion(demo_page):
    """A-1 has GTVp and GTVn: two rows of three pictures of 360 pixels; B-2 has one row.

    Planes go through a voxel of the lesion, so that its outline surrounds the middle of each. The reference's paths have
    points on both sides of the middle of the first picture, and none outside of the whole one.
    """
    image_module = pytest.importorskip("PIL.Image")
    shapes = {}
    for path in (demo_page / "r_files").glob("*.jpg"):
        with image_module.open(path) as image:
            shapes[path.name] = round(image.width / image.height, 1)
    assert shapes == {"A-1.jpg": 1.5, "B-2.jpg": 3.0, "C-3.jpg": 3.0}
    name, pairs = json.loads((demo_page / "r_files" / "A-1.js").read_text().partition("(")[2].rpartition(")")[0])
    contours = dict(pairs)
    assert name == "A-1"
    for paths in contours.values():
        points = [tuple(map(int, pair.split(","))) for path in paths for pair in re.findall(r"\d+,\d+", path)]
        assert all(0 <= x <= 1080 and 0 <= y <= 720 for x, y in points)
    primary = [tuple(map(int, pair.split(","))) for pair in re.findall(r"\d+,\d+", contours[""][0])]
    of_first = [(x, y) for x, y in primary if x < 360 and y < 360]
    assert min(x for x, _ in of_first) < 180 < max(x for x, _ in of_first)
    assert min(y for _, y in of_first) < 180 < max(y for _, y in of_first)


def test_only_scored_cases_are_drawn(demo):
    """D-4 of the cohort has no results; another cohort, or one without scored cases, is an error.

    A-1 has 4 x 5 x 5 = 100 voxels of GTVp and 3 x 3 x 3 = 27 of GTVn; in the other cohort one voxel more.
    """
    cohort = demo / "cohort"
    shutil.copytree(cohort / "A-1", cohort / "D-4")
    shutil.copy(cohort / "ground_truth" / "A-1.mha", cohort / "ground_truth" / "D-4.mha")
    text = build(demo)
    assert "D-4" not in text
    assert {path.stem for path in (demo / "r_files").iterdir()} == {"A-1", "B-2", "C-3"}
    mask = draw_mask("A-1")
    mask[0, 0, 0] = 2
    write_mask(cohort / "ground_truth" / "A-1.mha", mask, GRID)
    message = r"^A-1\.mha: 28 voxels of GTVn, expected the 27 that were scored; is this another cohort\?$"
    with pytest.raises(HecktorError, match=message):
        build(demo)
    assert not (demo / "r.html").exists()
    for case in ("A-1", "B-2", "C-3"):
        (cohort / "ground_truth" / f"{case}.mha").unlink()
    with pytest.raises(
        HecktorError, match=r"--cohort: none of the scored cases, but D-4, expected .* of A-1, B-2, C-3"
    ):
        build(demo)


def test_masks_and_warnings_are_notes(demo, capsys):
    """B-2 is no image; C-3 was scored without a GTVp and has one voxel; only team ours has masks in the results."""
    masks = demo / "demo" / "task1" / "ours" / "predictions"
    (masks / "B-2.mha").write_bytes(b"no image")
    mask = np.zeros(GRID.array_shape, np.uint8)
    mask[0, 0, 0] = 1
    write_mask(masks / "C-3.mha", mask, GRID)
    for team in TEAMS:
        path = demo / "demo" / "task3" / team / "metrics.json"
        content = json.loads(path.read_text())
        own = ["only here"] if team == "ours" else []
        path.write_text(json.dumps({**content, "warnings": ["centres: none known", *own]}))
    text = build(demo)
    assert "ours: B-2.mha: not a readable image" in text
    assert "ours: C-3.mha: 1 voxel of GTVp, expected the 0 that were scored; is this another run?" in text
    assert "no masks of &lt;b&gt;bold, whose contours are not shown" in text
    printed = capsys.readouterr()
    assert "warning: no masks of <b>bold" in printed.err
    assert "no SUVmax in the report; to add it, run hecktor study baselines" in printed.out
    assert text.count("centres: none known") == text.count("all teams: centres: none known") == 1
    assert "ours: only here" in text
    (masks / "B-2.mha").unlink()
    assert "no mask of ours" in build(demo, "--max-patients", "2")
    assert "warning: pictures of 2 of 3 cases (--max-patients)" in capsys.readouterr().err


def test_the_data_of_figures_are_files_and_a_page_needs_no_scans(demo):
    """Only one task is drawn, since drawing is slow."""
    folder = demo / "figures"
    for task in ("task1", "task3"):
        shutil.rmtree(demo / "demo" / task)
    arguments = ["--results", str(demo / "demo"), "--output", str(demo / "r.html"), "--cases"]
    earlier = json.dumps({"name": "dsc-by-team", "caption": "A figure of an earlier run.", "columns": {}})
    write_files({folder / "task1" / f"dsc-by-team{suffix}": earlier.encode() for suffix in (".json", ".csv", ".svg")})
    write_files({folder / "task1" / "notes.csv": b"mine", folder / "task1" / "notes.json": b"{}"})
    assert report([*arguments, "--figures", str(folder)]) == 0
    assert sorted(path.name for path in (folder / "task1").iterdir()) == ["notes.csv", "notes.json"]
    shutil.rmtree(folder / "task1")
    written = {path.relative_to(folder).as_posix() for path in folder.rglob("*.*")}
    assert {"task2/metrics.json", "task2/metrics.csv", "task2/survival.csv"} <= written
    data = {path.with_suffix(""): path.read_text(encoding="utf-8") for path in folder.rglob("*.json")}
    drawn = {name for name, text in data.items() if '"kind"' in text}
    assert len(drawn) > 7
    assert drawn == {path.with_suffix("") for path in folder.rglob("*.svg")}
    assert drawn == {path.with_suffix("") for path in folder.rglob("*.pdf")}
    assert folder / "task2" / "two-teams" in drawn
    assert "There are no pictures" in (demo / "r.html").read_text()
    assert not (demo / "r_files").exists()


def test_a_copied_submission_is_named(demo):
    """Both teams have the same answers; the page names them below the leaderboard."""
    folder = demo / "demo" / "task3"
    for team in TEAMS[1:]:
        shutil.copy(folder / "ours" / "metrics.json", folder / team / "metrics.json")
    files = [str(folder / team / "metrics.json") for team in TEAMS]
    rank(["--task", "hpv", *files, "--output", str(folder), "--bootstraps", "9"])
    assert report(["--results", str(folder), "--output", str(demo / "r.html")]) == 0
    line = r"<li>(ours and &lt;b&gt;bold|&lt;b&gt;bold and ours): identical answers in 2 of 2 cases \(hpv\)<"
    assert re.search(line, (demo / "r.html").read_text())
