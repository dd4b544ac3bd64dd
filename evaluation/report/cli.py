"""`hecktor report`: one page with tables, plots and pictures of every patient."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from contract.editions import load_edition
from contract.files import write_text
from contract.options import add_edition_option, name_path, whole_number
from evaluation.analyses.sources import find_masks, find_patients, find_results, team_names
from evaluation.execution.options import add_workers
from evaluation.execution.pool import map_cases
from evaluation.report.page import PageContent, build_page, colours_of
from evaluation.report.pictures import PatientPicture, PictureRequest, draw_patient
from evaluation.viewer.export import add_export_options, export_requested


def main(argv: Sequence[str] | None = None) -> int:
    """Build the page; raises HecktorError for errors that the user can fix."""
    options = _parser().parse_args(argv)
    edition = load_edition(options.edition)
    results = find_results(options.results, edition)
    teams = team_names(results)
    colours = colours_of(teams)
    pictures: list[PatientPicture] = []
    if options.cohort is not None:
        masks = find_masks(options.results, edition, teams, dict(options.masks))
        patients = find_patients(options.cohort, edition, masks)[: options.max_patients]
        requests = [PictureRequest(files, colours) for files in patients]
        pictures = map_cases(draw_patient, requests, options.workers, _without_predictions)
    content = PageContent(options.title, options.note, results, pictures, colours)
    write_text(options.output, build_page(content))
    print(f"written: {options.output}")
    if options.viewer is not None:
        print(f"written: {export_requested(options)}")
    return 0


def _without_predictions(request: PictureRequest) -> PatientPicture:
    """The picture of a patient without predictions, for predictions that kill the process that reads them."""
    picture = draw_patient(replace(request, files=replace(request.files, predictions={})))
    return replace(picture, notes=("the process that drew the predictions died, so they are not shown",))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hecktor report", description="Write an HTML page with results, plots and pictures."
    )
    parser.add_argument(
        "--results",
        type=Path,
        required=True,
        help="folder with task1/leaderboard.json, task1/<team>/metrics.json, task2/...",
    )
    parser.add_argument(
        "--cohort", type=Path, help="folder with <case>/input/images/... and ground_truth/<case>.mha, to draw pictures"
    )
    parser.add_argument(
        "--masks",
        type=name_path,
        action="append",
        default=[],
        metavar="TEAM=FOLDER",
        help="a team's masks <case>.mha (default: task1/<team>/predictions in the results)",
    )
    parser.add_argument("--output", type=Path, required=True, help="HTML file to write, such as report.html")
    parser.add_argument("--title", default="HECKTOR results", help="heading of the page (default: %(default)s)")
    parser.add_argument("--note", default="", help="one line under the heading")
    parser.add_argument(
        "--max-patients", type=whole_number(0), default=60, help="maximum number of pictures (default: %(default)s)"
    )
    add_export_options(parser)
    add_workers(parser)
    add_edition_option(parser)
    return parser
