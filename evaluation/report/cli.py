"""`hecktor report`: one page with tables, plots and pictures of every patient."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from contract.cpus import usable_cpus
from contract.files import write_text
from contract.options import whole_number
from evaluation.execution.pool import map_cases
from evaluation.report.page import PageContent, build_page, colours_of
from evaluation.report.pictures import PatientPicture, PictureRequest, draw_patient
from evaluation.report.sources import find_masks, find_patients, find_results, team_names


def main(argv: Sequence[str] | None = None) -> int:
    """Build the page; raises HecktorError for what a user can mend."""
    options = _parser().parse_args(argv)
    results = find_results(options.results)
    teams = team_names(results)
    colours = colours_of(teams)
    pictures: list[PatientPicture] = []
    if options.cohort is not None:
        masks = find_masks(options.results, teams, dict(options.masks))
        patients = find_patients(options.cohort, masks)[: options.max_patients]
        requests = [PictureRequest(files, colours) for files in patients]
        pictures = map_cases(draw_patient, requests, options.workers, _without_predictions)
    content = PageContent(options.title, options.note, results, pictures, colours)
    write_text(options.output, build_page(content))
    print(f"written: {options.output}")
    return 0


def _without_predictions(request: PictureRequest) -> PatientPicture:
    """What is drawn of a patient whose predictions end the process that reads them."""
    picture = draw_patient(replace(request, files=replace(request.files, predictions={})))
    return replace(picture, notes=("the process that drew the predictions died, so they are not shown",))


def _team_folder(text: str) -> tuple[str, Path]:
    team, separator, folder = text.partition("=")
    if not (team and separator and folder):
        raise argparse.ArgumentTypeError(f"{text!r}: expected TEAM=FOLDER")
    return team, Path(folder)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hecktor report", description="Make a page of results, plots and pictures.")
    parser.add_argument(
        "--results", type=Path, required=True, help="task1/leaderboard.json, task1/<team>/metrics.json, task2/..."
    )
    parser.add_argument("--cohort", type=Path, help="<case>/input/images/... and ground_truth/<case>.mha; for pictures")
    parser.add_argument(
        "--masks",
        type=_team_folder,
        action="append",
        default=[],
        metavar="TEAM=FOLDER",
        help="a team's masks <case>.mha (default: task1/<team>/predictions in the results)",
    )
    parser.add_argument("--output", type=Path, required=True, help="the page, report.html")
    parser.add_argument("--title", default="HECKTOR results", help="heading (%(default)s)")
    parser.add_argument("--note", default="", help="one line under the heading")
    parser.add_argument(
        "--max-patients", type=whole_number(0), default=60, help="pictures of at most so many (%(default)s)"
    )
    parser.add_argument("--workers", type=whole_number(0), default=usable_cpus(), help="processes (%(default)s)")
    return parser
