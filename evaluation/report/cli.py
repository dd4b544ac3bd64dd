"""`hecktor report`: one page with tables, charts and pictures of every case."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from contract.errors import HecktorError
from contract.options import add_edition_option, name_path, whole_number
from evaluation.options import add_workers

if TYPE_CHECKING:
    from evaluation.analyses.analysis import Analysis
    from evaluation.analyses.sources import PatientFiles
    from evaluation.report.cases import CasePicture


def main(argv: Sequence[str] | None = None) -> int:
    """Build the page; raises HecktorError for errors that the user can fix."""
    options = _parser().parse_args(argv)
    # Not for `--help`: these load scipy and SimpleITK.
    from contract.files import write_text
    from evaluation.analyses.analysis import write_analyses
    from evaluation.analyses.pipeline import task_analyses
    from evaluation.analyses.sources import edition_of_results, find_masks, find_patients, find_results, team_names
    from evaluation.analyses.tasks import between_tasks
    from evaluation.page.colours import colours_of
    from evaluation.report.page import BETWEEN_TASKS, PageContent, build_page, page_file

    page = page_file(options.output)
    edition = edition_of_results(options.results, options.edition)
    results = find_results(options.results, edition)
    teams = team_names(results)
    colours = colours_of(teams)
    analyses: dict[str, list[Analysis]] = {one.task.name: task_analyses(one) for one in results}
    analyses[BETWEEN_TASKS] = between_tasks(results)
    if options.figures is not None:
        write_analyses(options.figures, analyses)
        print(f"written: {options.figures}")
    pictures: list[CasePicture] = []
    if options.cohort is not None:
        masks = find_masks(options.results, edition, teams, dict(options.masks))
        patients = find_patients(options.cohort, edition, masks)[: options.max_patients]
        pictures = _write_pictures(patients, colours, page, options.workers)
    content = PageContent(options.title, options.note, results, analyses, pictures, colours)
    write_text(page, build_page(content))
    print(f"written: {page}")
    if options.viewer is not None:
        _write_viewer(options)
        print(f"written: {options.viewer}")
    return 0


def _write_pictures(
    patients: Sequence[PatientFiles], colours: Mapping[str, str], page: Path, workers: int
) -> list[CasePicture]:
    """Write `<page>_files/<case>.jpg`; the folder appears when all pictures are in it."""
    from contract.files import whole_folder, write_bytes
    from evaluation.execution.pool import map_cases
    from evaluation.report.cases import CasePicture
    from evaluation.report.pictures import PictureRequest, draw_patient, without_predictions

    requests = [PictureRequest(files, colours) for files in patients]
    drawn = map_cases(draw_patient, requests, workers, without_predictions)
    folder = page.with_name(f"{page.stem}_files")
    with whole_folder(folder) as partial:
        for picture in drawn:
            write_bytes(partial / f"{picture.case}.jpg", picture.jpeg)
    return [CasePicture(one.case, f"{folder.name}/{one.case}.jpg", one.notes) for one in drawn]


def _write_viewer(options: argparse.Namespace) -> None:
    from evaluation.viewer.cohort import ViewerRequest, find_cohort
    from evaluation.viewer.export import export_viewer

    if options.cohort is None:
        raise HecktorError("--viewer", "no cohort", "--cohort with the scans")
    request = ViewerRequest(options.cohort, options.results, dict(options.masks), edition=options.edition)
    export_viewer(options.viewer, find_cohort(request).worst(options.viewer_cases))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hecktor report", description="Write an HTML page with results, plots and pictures."
    )
    parser.add_argument(
        "--results",
        type=Path,
        required=True,
        help="folder with leaderboard.json of `rank` and <team>/metrics.json of `rehearse` or `evaluate`, for several "
        "tasks in task1/, task2/, ...",
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
        help="a team's masks <case>.mha (default: <team>/predictions in the results)",
    )
    parser.add_argument("--output", type=Path, required=True, help="folder for index.html, or an HTML file")
    parser.add_argument("--title", default="HECKTOR results", help="heading of the page (default: %(default)s)")
    parser.add_argument("--note", default="", help="one line under the heading")
    parser.add_argument(
        "--max-patients", type=whole_number(0), default=60, help="maximum number of pictures (default: %(default)s)"
    )
    parser.add_argument(
        "--figures", type=Path, metavar="FOLDER", help="also write the data of every figure as JSON and CSV files"
    )
    folder = "folder for a viewer of a few cases, to be opened from a web server (docs/report.md)"
    parser.add_argument("--viewer", type=Path, metavar="DIR", help=folder)
    cases = "number of cases in the viewer, those with the lowest GTVp DSC over all teams (default: %(default)s)"
    parser.add_argument("--viewer-cases", type=whole_number(1), default=3, metavar="N", help=cases)
    add_workers(parser)
    add_edition_option(parser, "that of the results")
    return parser
