"""`hecktor report`: one page with tables and charts, and on demand outcomes and pictures of every case."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from contract.errors import HecktorError
from contract.io.locks import lock_output
from contract.options import Parser, add_edition_option, require_files, require_folders, whole_number
from evaluation.options import add_workers_option, join_team_folders, parse_team_folders
from evaluation.results.board import leaderboard_folders
from reporting.report.files import page_file, pictures_of, remove_earlier_page

if TYPE_CHECKING:
    from evaluation.editions.profile import EvaluationProfile
    from evaluation.results.task import TaskResults
    from reporting.analyses.analysis import Analysis
    from reporting.report.cases import CasePicture
    from reporting.report.pictures import PictureRequest


def main(argv: Sequence[str] | None = None) -> int:
    """Build the page; raises HecktorError for errors that the user can fix."""
    options = _parser().parse_args(argv)
    with lock_output(page_file(options.output)):
        return _report(options)


def _report(options: argparse.Namespace) -> int:
    """Build the page as `main`. Raises `HecktorError`."""
    page = page_file(options.output)
    remove_earlier_page(page)
    require_folders(options, "--results", "--cohort", "--masks")
    require_files(options, "--groups")
    masks = join_team_folders("--masks", options.masks)
    _check_options(options, masks)
    leaderboard_folders(options.results)  # refuses any other folder
    # Not for `--help` and a wrong folder: these load scipy and SimpleITK.
    from contract.io.files import write_text
    from reporting.analyses.analysis import write_analyses
    from reporting.analyses.case_ranks import compare_two, find_pair
    from reporting.analyses.groups import add_groups
    from reporting.analyses.pipeline import analyse_task
    from reporting.analyses.sources import find_results, list_teams, load_results_profile
    from reporting.analyses.tasks import compare_tasks
    from reporting.page.html import assign_colours
    from reporting.report.page import (
        BETWEEN_TASKS,
        NOT_CHECKED,
        PageContent,
        build_page,
        select_analyses,
    )

    profile = load_results_profile(options.results, options.edition)
    results = add_groups(find_results(options.results, profile, same_rules=options.edition is not None), options.groups)
    sys.stderr.writelines(f"warning: task {one.task.number}: {NOT_CHECKED}\n" for one in results if one.is_alone)
    colours = assign_colours(list_teams(results))
    pair = find_pair(results, options.compare)
    analyses: dict[str, list[Analysis]] = {
        task.key: [*compare_two(task, pair), *analyse_task(task)] for task in results
    }
    analyses[BETWEEN_TASKS] = compare_tasks(results)
    pictures, notes = _pictures(options, profile, results, masks, page)
    if options.figures is not None:
        shown = {key: select_analyses(of, with_cases=options.cases) for key, of in analyses.items()}
        from reporting.report.figures import (
            write_figures,
        )  # takes matplotlib, which a page without pictures never needs

        write_analyses(options.figures, shown)
        write_figures(options.figures, shown, colours)
        print(f"written: {options.figures}")
    content = PageContent(
        title=options.title or f"{profile.edition.title} results",
        note=options.note,
        results=results,
        analyses=analyses,
        pictures=pictures,
        colours=colours,
        picture_notes=notes,
        edition=profile.edition.title,
        date=date.today().isoformat(),
        citation=profile.edition.citation,
        with_cases=options.cases,
    )
    write_text(page, build_page(content))
    print(f"written: {page}")
    if options.viewer is not None:
        print(f"written: {_write_viewer(options, masks)}")
    return 0


def _pictures(
    options: argparse.Namespace,
    profile: EvaluationProfile,
    results: Sequence[TaskResults],
    masks: Mapping[str, Path],
    page: Path,
) -> tuple[list[CasePicture], list[str]]:
    """The pictures of the cohort's cases, written beside the page, and what they lack; none without a cohort."""
    if options.cohort is None:
        return [], []
    from reporting.analyses.scans import find_scans
    from reporting.analyses.sources import list_entries
    from reporting.page.html import assign_colours
    from reporting.report.pictures import plan_pictures

    scans = find_scans(options.cohort, profile.edition)
    drawn = assign_colours(list_entries(results))
    requests, notes = plan_pictures(scans, results, masks, drawn, options.max_patients)
    sys.stderr.writelines(f"warning: {note}\n" for note in notes)
    return _write_pictures(requests, page, options.workers), notes


def _check_options(options: argparse.Namespace, masks: Mapping[str, Path]) -> None:
    of_patients = {"--cohort": options.cohort, "--viewer": options.viewer, "--compare": options.compare or None}
    for option, value in of_patients.items():
        if value is not None and not options.cases:
            raise HecktorError(option, "found without --cases", "both: it shows individual patients")
    for option, needs_scans in (("--masks", bool(masks)), ("--viewer", options.viewer is not None)):
        if needs_scans and options.cohort is None:
            raise HecktorError(option, "found without --cohort", "both")


def _write_pictures(requests: Sequence[PictureRequest], page: Path, workers: int) -> list[CasePicture]:
    """Write `<page>_files/<case>.jpg` and `.js`, its contours; the folder appears when all pictures are in it."""
    from contract.io.files import atomic_folder, write_bytes
    from evaluation.execution import map_cases
    from reporting.report.cases import CasePicture, contours_script
    from reporting.report.pictures import draw_patient, without_predictions

    drawn = map_cases(draw_patient, requests, workers, without_predictions)
    folder = pictures_of(page)
    with atomic_folder(folder) as partial:
        for picture in drawn:
            write_bytes(partial / f"{picture.case}.jpg", picture.jpeg)
            write_bytes(partial / f"{picture.case}.js", contours_script(picture.case, picture.contours).encode())
    places = [f"{folder.name}/{one.case}" for one in drawn]
    return [
        CasePicture(one.case, f"{place}.jpg", one.notes, f"{place}.js")
        for one, place in zip(drawn, places, strict=True)
    ]


def _write_viewer(options: argparse.Namespace, masks: Mapping[str, Path]) -> Path:
    from reporting.viewer.cohort import ViewerRequest, find_cohort
    from reporting.viewer.server import export_viewer

    request = ViewerRequest(options.cohort, options.results, masks, edition=options.edition)
    cohort = find_cohort(request)
    sys.stderr.writelines(f"warning: {note}\n" for note in cohort.notes)
    return export_viewer(options.viewer, cohort.select_worst(options.viewer_cases))


def _parser() -> argparse.ArgumentParser:
    description = "Write an HTML page with results and plots."
    parser = Parser(prog="hecktor report", description=description)
    add = parser.add_argument
    results = (
        "folder with leaderboard.json of `rank` and <team>/metrics.json of `rehearse` or `evaluate`, for several tasks "
        "in task1/, task2/, ..."
    )
    add("--results", type=Path, required=True, help=results)
    cases = (
        "also show individual patients: names, outcomes, every team's answers, survival curves, confusion matrices; "
        "publish such a page only if you may publish them"
    )
    add("--cases", action="store_true", help=cases)
    cohort = (
        "folder with CT, PET and reference of each case, in the platform's or the release's layout, for pictures of "
        "the scored cases (needs --cases)"
    )
    add("--cohort", type=Path, help=cohort)
    masks = "a team's masks <case>.mha, or a folder of such folders (default: <team>/predictions in the results)"
    add("--masks", type=parse_team_folders, action="append", default=[], metavar="TEAM=FOLDER|FOLDER", help=masks)
    groups = (
        "also compare groups of patients by this column of a CSV table, such as clinical.csv:HPV Status, or by each "
        "combination of several, such as clinical.csv:CenterID,HPV Status"
    )
    add(
        "--groups",
        type=_table_column,
        action="append",
        default=[],
        metavar="TABLE:COLUMN[,COLUMN]",
        help=f"{groups}; may be repeated",
    )
    compare = (
        "two teams whose cases the page shows side by side (needs --cases; default: the winner and the second of each "
        "task)"
    )
    add("--compare", nargs=2, default=[], metavar=("TEAM", "TEAM"), help=compare)
    add("--output", type=Path, required=True, help="folder for index.html, or an HTML file")
    add("--title", help="heading of the page (default: the edition's title and `results`)")
    add("--note", default="", help="one line under the heading")
    add("--max-patients", type=whole_number(0), default=60, help="maximum number of pictures (default: %(default)s)")
    add(
        "--figures",
        type=Path,
        metavar="FOLDER",
        help="also write every figure as SVG and PDF, its data as JSON and CSV",
    )
    page = "also write a viewer page of a few cases: a folder for index.html, or an HTML file (needs --cases)"
    add("--viewer", type=Path, metavar="PAGE", help=page)
    number = "number of cases in the viewer, those with the lowest GTVp DSC over all teams (default: %(default)s)"
    add("--viewer-cases", type=whole_number(1), default=3, metavar="N", help=number)
    add_workers_option(parser)
    add_edition_option(parser, "that of the results")
    return parser


def _table_column(text: str) -> tuple[Path, str]:
    path, _, column = text.rpartition(":")
    if not path or not column.strip():
        raise argparse.ArgumentTypeError(f"found {text!r}, expected TABLE.csv:COLUMN")
    return Path(path), ", ".join(part.strip() for part in column.split(","))
