"""The command `hecktor rank`: the official ranking of teams from their metrics.json files, and further rankings."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from contract.errors import HecktorError
from contract.io.files import pause_garbage_collector, suggest_folder, write_files, write_text
from contract.io.locks import lock_output
from contract.options import Parser, add_edition_option, add_task_option, require_files, require_paths, whole_number
from contract.platform import METRICS_JSON, is_system_name, normalise_unicode
from evaluation.editions.document import TIE_RULES
from evaluation.options import parse_name_path, parse_name_paths
from evaluation.ranking import DEFAULT_RANKINGS
from evaluation.results.board import LEADERBOARD_JSON, make_paths_relative
from evaluation.results.documents import check_owner, format_document, read_task

if TYPE_CHECKING:
    from evaluation.ranking.out_of_competition import OutOfCompetitionSource

LEADERBOARD_CSV: Final = "leaderboard.csv"
LEADERBOARD_TEX: Final = "leaderboard.tex"
CASES_CSV: Final = "cases.csv"
# Options that are not fields of a `RankingRequest`.
_FILE_OPTIONS: Final = frozenset({"metrics", "names", "output", "latex", "cases", "rows_of"})


def main(argv: Sequence[str] | None = None) -> int:
    """Rank teams, write `leaderboard.json` and `.csv` and print the table; raise `HecktorError` for a user's error."""
    options = _make_parser().parse_args(argv)
    with lock_output(options.output), pause_garbage_collector():
        return _rank(options)


def _rank(options: argparse.Namespace) -> int:
    """Check the options, rank, and write all files at once; raise `HecktorError` for a user's error."""
    _remove_earlier_leaderboard(options.output, options.metrics)
    require_paths(options, "metrics")
    require_files(options, "--table", "--methods", "--runs")
    aside = {source.source.resolve() for source in options.out_of_competition}
    aside |= {path.resolve() for _, paths in options.runs for path in paths}
    teams = _name_results(options.metrics, options.names, aside)
    if not (teams or options.runs or options.table):
        raise HecktorError("metrics", "no metrics.json is given", "one of each team, or --runs, or --table")
    if options.cases and options.without_cases:
        raise HecktorError("--cases", "together with --without-case", "one of the two")
    file_of = dict(teams)
    unknown = [team for team, _ in options.rows_of if team not in file_of]
    if unknown:
        raise HecktorError("--rows-of", f"team {unknown[0]!r:.100}", f"one of {', '.join(file_of)}"[:300])
    # These imports are slow, so they follow the checks: --help and a wrong path get an immediate answer.
    from evaluation.ranking.paper import format_board_latex, format_cases
    from evaluation.ranking.pipeline import RankingRequest, rank_results
    from evaluation.ranking.stored_rows import format_participant_rows
    from evaluation.ranking.table import format_board, format_board_csv, format_runs

    # The other options have the names of the request's fields.
    fields = {name: value for name, value in vars(options).items() if name not in _FILE_OPTIONS}
    board = rank_results(RankingRequest(teams, **fields))
    check_owner(options.output / LEADERBOARD_JSON, board.task)
    contents = {CASES_CSV: format_cases(board.files)} if options.cases else {}
    board = board.model_copy(update={"files": make_paths_relative(options.output, board.files)})
    contents |= {LEADERBOARD_JSON: format_document(board), LEADERBOARD_CSV: format_board_csv(board)}
    if options.latex:
        contents[LEADERBOARD_TEX] = format_board_latex(board)
    write_files({options.output / name: text.encode() for name, text in contents.items()})
    rows_of_teams = {
        path: format_participant_rows(file_of[team], team, options.edition) for team, path in options.rows_of
    }
    for path, text in rows_of_teams.items():
        write_text(path, text)
    sys.stdout.writelines(f"{line}\n" for line in format_runs(board))
    sys.stdout.write(f"{format_board(board)}written: {options.output}: {', '.join(sorted(contents))}\n")
    sys.stdout.writelines(f"written: {path}\n" for path in rows_of_teams)
    return 0


def _remove_earlier_leaderboard(output: Path, paths: Sequence[Path]) -> None:
    """Remove an earlier leaderboard of the same task, so that it is not taken for the result if this ranking fails.

    If no result can be read, the task is unknown, and the leaderboard stays.

    Raises:
        OutputError: The leaderboard belongs to another task.
    """
    files = [file for path in paths for file in (path, path / METRICS_JSON, *sorted(path.glob(f"*/{METRICS_JSON}")))]
    task = next((task for task in (read_task(file) for file in files if file.is_file()) if task), "")
    if task and (output / LEADERBOARD_JSON).is_file():
        check_owner(output / LEADERBOARD_JSON, task)
        for name in (LEADERBOARD_JSON, LEADERBOARD_CSV, LEADERBOARD_TEX, CASES_CSV):
            (output / name).unlink(missing_ok=True)


def _name_results(paths: Sequence[Path], names: Sequence[str] | None, aside: Set[Path]) -> list[tuple[str, Path]]:
    """Return the name and the metrics.json of each team; files of a folder that are in `aside` are left out.

    Raises:
        HecktorError: A path is not a folder or a JSON file, a folder has no results, or the number of names differs
            from the number of files.
    """
    for path in paths:
        if not path.is_dir() and path.suffix.lower() != ".json":
            raise HecktorError("metrics", f"a file: {path.absolute()}", f"a {METRICS_JSON}, or a folder with one")
    files: list[Path] = []
    for path in paths:
        files += [file for file in _find_results(path) if file.resolve() not in aside] if path.is_dir() else [path]
    teams = list(names) if names else [normalise_unicode(path.resolve().parent.name) for path in files]
    if len(teams) != len(files):
        raise HecktorError("--names", f"{len(teams)} names for {len(files)} files", "one each")
    return list(zip(teams, files, strict=True))


def _find_results(folder: Path) -> list[Path]:
    """Find the metrics.json in a folder, or else in its team folders; warn about team folders without results.

    Raises:
        HecktorError: The folder has no results.
    """
    if (folder / METRICS_JSON).is_file():
        return [folder / METRICS_JSON]
    teams = sorted(path for path in folder.iterdir() if path.is_dir() and not is_system_name(path.name))
    files = [team / METRICS_JSON for team in teams if (team / METRICS_JSON).is_file()]
    if not files:
        nearby = suggest_folder(folder, lambda path: any(path.glob(f"*/{METRICS_JSON}")))
        expected = "the results of `hecktor evaluate --teams`"
        raise HecktorError(folder.resolve().name, f"no TEAM/{METRICS_JSON}{nearby}", expected)
    without_results = [team.name for team in teams if team / METRICS_JSON not in files]
    if without_results:
        sys.stderr.write(f"warning: {folder.name}: no {METRICS_JSON} of {', '.join(without_results)}, not ranked\n")
    return files


def _make_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="hecktor rank", description="Rank teams from their metrics.json files.")
    add_task_option(parser)
    add = parser.add_argument
    add("metrics", type=Path, nargs="*", help="each team's metrics.json or folder, or a folder of TEAM/metrics.json")
    add("--names", nargs="+", help="team names in the order of the files (default: the names of their folders)")
    repeated: dict[str, Any] = {"action": "append", "default": []}
    table = "rank the values in a CSV table with a column `team` and one column per metric; without significance tests"
    add("--table", type=Path, metavar="FILE", help=table)
    methods = "CSV table with a column `team` and columns that describe each method, shown next to the scores"
    add("--methods", type=Path, metavar="FILE", help=methods)
    runs = "several runs of one team; the best run counts; may be repeated"
    add("--runs", type=parse_name_paths, metavar="TEAM=FILE,FILE", help=runs, **repeated)
    aside = "show a metrics.json, or the observers.json of `study observers`, without a rank; may be repeated"
    add("--out-of-competition", type=_parse_out_of_competition, metavar="NAME=FILE[:REASON]", help=aside, **repeated)
    add("--mean", action="store_true", help="add the mean of all ranked teams as a row without a rank")
    rankings = "number of bootstrap rankings, 0 for none (default: %(default)s)"
    add("--bootstraps", type=whole_number(0), default=DEFAULT_RANKINGS, help=rankings)
    seed = "seed of the bootstrap rankings (default: the seed of the first team's metrics.json)"
    add("--seed", type=whole_number(0), help=seed)
    without_rows = (
        "also rank teams whose metrics.json has no rows (`evaluate --no-rows`), marked as unverified, without "
        "stability and tests"
    )
    add("--without-rows", action="store_true", help=without_rows)
    without_case = "leave a case out of all figures; may be repeated"
    add("--without-case", metavar="CASE", dest="without_cases", help=without_case, **repeated)
    rows_of = "also write a team's own rows for this team, without outcomes, as CSV; may be repeated"
    add("--rows-of", type=parse_name_path, metavar="TEAM=FILE", help=rows_of, **repeated)
    add_edition_option(parser, "the edition of the results")
    official = "use another ranking scheme of the edition as the official one"
    add("--official", metavar="RANKING", help=official)
    add("--ties", choices=TIE_RULES, help="rank of tied teams (default: the edition's rule)")
    add("--latex", action="store_true", help="also write leaderboard.tex, a LaTeX table (package booktabs)")
    add("--cases", action="store_true", help="also write cases.csv: the values of every team for every patient")
    add("--output", type=Path, required=True, help="folder for leaderboard.json and leaderboard.csv")
    return parser


def _parse_out_of_competition(text: str) -> OutOfCompetitionSource:
    from evaluation.ranking.out_of_competition import parse_source

    return parse_source(text)
