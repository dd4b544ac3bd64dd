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
from evaluation.options import StoreResults, add_workers_option, join_team_folders, parse_team_folders
from evaluation.results.board import list_leaderboard_folders
from reporting.report.files import (
    find_page_path,
    get_pictures_folder,
    remove_earlier_figures,
    remove_earlier_page,
)

if TYPE_CHECKING:
    from evaluation.editions.profile import EvaluationProfile
    from evaluation.results.task import TaskResults
    from reporting.analyses.analysis import Analysis
    from reporting.report.cases import CasePicture
    from reporting.report.pictures import PictureRequest


def main(argv: Sequence[str] | None = None) -> int:
    """Build the page; raise `HecktorError` for errors that the user can fix."""
    options = _make_parser().parse_args(argv)
    page = find_page_path(options.output)
    with lock_output(page):
        # Another run may have written the page while this run waited.
        return _write_report(options, find_page_path(options.output))


def _write_report(options: argparse.Namespace, page: Path) -> int:
    """Write the page and the further files that the options name."""
    if options.viewer is not None:
        from reporting.viewer.server import find_viewer_page

        find_viewer_page(options.viewer).unlink(missing_ok=True)
    remove_earlier_page(page)
    if options.figures is not None:
        remove_earlier_figures(options.figures)
    require_folders(options, "--results", "--cohort", "--masks")
    require_files(options, "--groups")
    masks = join_team_folders("--masks", options.masks)
    _check_options(options, masks)
    list_leaderboard_folders(options.results)  # refuses any other folder
    # These modules load scipy and SimpleITK, which `--help` and a wrong folder do not need.
    from contract.io.files import pause_garbage_collector, write_text
    from reporting.analyses.groups import add_groups
    from reporting.analyses.sources import find_results, list_teams, load_results_profile
    from reporting.page.html import assign_colours
    from reporting.report.page import NOT_CHECKED, PageContent, build_page

    profile = load_results_profile(options.results, options.edition)
    with pause_garbage_collector():
        results = find_results(options.results, profile, same_rules=options.edition is not None)
    results = add_groups(results, options.groups)
    sys.stderr.writelines(f"warning: task {task.task.number}: {NOT_CHECKED}\n" for task in results if task.is_unchecked)
    if any(task.task.mask_spec is not None and not task.scans and not task.is_unchecked for task in results):
        print("no SUVmax in the report; to add it, run hecktor study baselines --cohort COHORT --output RESULTS")
    colours = assign_colours(list_teams(results))
    analyses = _compute_analyses(results, options.compare, with_cases=options.cases)
    requests, picture_notes = _plan_pictures(options, profile, results, masks)
    pictures = _write_pictures(requests, page, options.workers) if options.cohort is not None else []
    if options.figures is not None:
        _write_figures(options, analyses, colours)
    content = PageContent(
        title=options.title or f"{profile.edition.title} results",
        note=options.note,
        results=results,
        analyses=analyses,
        pictures=pictures,
        colours=colours,
        picture_notes=picture_notes,
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


def _check_options(options: argparse.Namespace, masks: Mapping[str, Path]) -> None:
    """Raise `HecktorError` if an option is used without another option that it needs."""
    needs_cases = {"--cohort": options.cohort, "--viewer": options.viewer, "--compare": options.compare or None}
    for option, value in needs_cases.items():
        if value is not None and not options.cases:
            raise HecktorError(option, "found without --cases", "both, since the report then shows individual patients")
    needs_cohort = {"--masks": masks or None, "--viewer": options.viewer}
    for option, value in needs_cohort.items():
        if value is not None and options.cohort is None:
            raise HecktorError(option, "found without --cohort", "both")


def _compute_analyses(
    results: Sequence[TaskResults], compared: Sequence[str], *, with_cases: bool
) -> dict[str, list[Analysis]]:
    """Compute the analyses of each task by its key, and the analyses of several tasks.

    Args:
        results: The results of each task.
        compared: Two teams whose cases are compared; empty for the first two teams of each task.
        with_cases: Whether to compute the analyses that show single patients.
    """
    from reporting.analyses.case_ranks import compare_two, find_pair
    from reporting.analyses.pipeline import analyse_task
    from reporting.analyses.tasks import compare_tasks
    from reporting.report.page import BETWEEN_TASKS

    pair = find_pair(results, compared)
    analyses = {
        task.key: [*(compare_two(task, pair) if with_cases else ()), *analyse_task(task, with_cases=with_cases)]
        for task in results
    }
    return {**analyses, BETWEEN_TASKS: compare_tasks(results)}


def _write_figures(
    options: argparse.Namespace, analyses: Mapping[str, Sequence[Analysis]], colours: Mapping[str, str]
) -> None:
    """Write each figure that the page may show as JSON, CSV, SVG and PDF."""
    from reporting.analyses.analysis import write_analyses
    from reporting.report.figures import write_figures  # loads matplotlib, which only --figures needs
    from reporting.report.page import select_analyses

    shown = {key: select_analyses(items, with_cases=options.cases) for key, items in analyses.items()}
    write_analyses(options.figures, shown)
    write_figures(options.figures, shown, colours)
    print(f"written: {options.figures}")


def _plan_pictures(
    options: argparse.Namespace,
    profile: EvaluationProfile,
    results: Sequence[TaskResults],
    masks: Mapping[str, Path],
) -> tuple[list[PictureRequest], list[str]]:
    """Plan the pictures of the cohort's cases. Without a cohort there are no pictures.

    Returns:
        The patients to draw, and notes about missing pictures and masks.
    """
    if options.cohort is None:
        return [], []
    from reporting.analyses.scans import find_scans
    from reporting.analyses.sources import list_entries
    from reporting.page.html import assign_colours
    from reporting.report.pictures import plan_pictures

    scans = find_scans(options.cohort, profile.edition)
    colours = assign_colours(list_entries(results))
    requests, notes = plan_pictures(scans, results, masks, colours, options.max_patients)
    sys.stderr.writelines(f"warning: {note}\n" for note in notes)
    return requests, notes


def _write_pictures(requests: Sequence[PictureRequest], page: Path, workers: int) -> list[CasePicture]:
    """Write `<page>_files/<case>.jpg` and its contours as `.js`. The folder appears when it contains all pictures."""
    from contract.io.files import atomic_folder, write_bytes
    from evaluation.execution import map_cases
    from reporting.report.cases import CasePicture, format_contours_script
    from reporting.report.pictures import draw_patient, draw_without_predictions

    folder = get_pictures_folder(page)
    pictures = []
    drawn = map_cases(draw_patient, requests, workers, draw_without_predictions)
    with atomic_folder(folder) as partial:
        for picture in drawn:
            script = format_contours_script(picture.case, picture.contours)
            write_bytes(partial / f"{picture.case}.jpg", picture.jpeg)
            write_bytes(partial / f"{picture.case}.js", script.encode())
            address = f"{folder.name}/{picture.case}"
            pictures.append(CasePicture(picture.case, f"{address}.jpg", picture.notes, f"{address}.js"))
    return pictures


def _write_viewer(options: argparse.Namespace, masks: Mapping[str, Path]) -> Path:
    """Write a viewer page of the cases with the lowest DSC, and return its path."""
    from reporting.viewer.cohort import ViewerRequest, find_cohort
    from reporting.viewer.server import export_viewer

    request = ViewerRequest(options.cohort, options.results, masks, edition=options.edition)
    cohort = find_cohort(request)
    sys.stderr.writelines(f"warning: {note}\n" for note in cohort.notes)
    return export_viewer(options.viewer, cohort.select_worst(options.viewer_cases))


def _make_parser() -> argparse.ArgumentParser:
    description = "Write an HTML page with results and plots."
    parser = Parser(prog="hecktor report", description=description)
    add = parser.add_argument
    results = (
        "folder with leaderboard.json of `rank` and <team>/metrics.json of `rehearse` or `evaluate`, for several tasks "
        "in task1/, task2/, ..."
    )
    add("--results", type=Path, action=StoreResults, required=True, help=results)
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
        type=_parse_table_column,
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
        help="also write every figure as SVG and PDF, its data as JSON and CSV; earlier figures are removed",
    )
    page = "also write a viewer page of a few cases: a folder for index.html, or an HTML file (needs --cases)"
    add("--viewer", type=Path, metavar="PAGE", help=page)
    number = "number of cases in the viewer, those with the lowest GTVp DSC over all teams (default: %(default)s)"
    add("--viewer-cases", type=whole_number(1), default=3, metavar="N", help=number)
    add_workers_option(parser)
    add_edition_option(parser, "the edition of the results")
    return parser


def _parse_table_column(text: str) -> tuple[Path, str]:
    path, _, column = text.rpartition(":")
    if not path or not column.strip():
        raise argparse.ArgumentTypeError(f"found {text!r}, expected TABLE.csv:COLUMN")
    return Path(path), ", ".join(part.strip() for part in column.split(","))
