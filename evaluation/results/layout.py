"""Find the leaderboards and the teams' files of a report, as `rank` and `rehearse` write them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from contract import platform
from contract.errors import HecktorError

LEADERBOARD_JSON: Final = "leaderboard.json"
_TASK: Final = "task"


def leaderboard_folders(results: Path) -> list[tuple[int | None, Path]]:
    """The folders with a leaderboard.json, and the number of each in the report.

    These are `task1`, `task2`, ...; without any the folder `results` itself, or else the folders directly in it. They
    have the number of the task that their leaderboard names.

    Raises:
        HecktorError: no leaderboard.
    """
    numbered = {int(path.name[4:]): path for path in results.glob(f"{_TASK}*") if path.name[4:].isdecimal()}
    folders: list[tuple[int | None, Path]] = [(number, path) for number, path in sorted(numbered.items())]
    if not _with_leaderboard(path for _, path in folders):
        folders = [(None, path) for path in [results] if _with_leaderboard([path])]
        folders = folders or [(None, path) for path in sorted(results.glob("*"))]
    found = [(number, path) for number, path in folders if _with_leaderboard([path])]
    if not found:
        expected = f"the results of `rank`: {LEADERBOARD_JSON}, or one in a folder for each task"
        raise HecktorError(results.name, f"found no {_TASK}1/{LEADERBOARD_JSON}", expected)
    return found


def _with_leaderboard(folders: Iterable[Path]) -> bool:
    return any((folder / LEADERBOARD_JSON).is_file() for folder in folders)


def file_in_folder(path: Path) -> str:
    """The file and its folder, for messages: the files of all teams have one name."""
    return f"{path.parent.resolve().name}/{path.name}"


def metrics_path(folder: Path, results: Path, team: str, files: Mapping[str, str]) -> Path | None:
    """The metrics.json of a team; None if it has none.

    `files` are the paths that the leaderboard in `folder` states, relative to it. Results that were moved since are
    also found in a folder with the team's name, beside the leaderboard or directly in `results`.
    """
    places = [_without_links(folder / files[team])] if team in files else []
    places += [one / team / platform.METRICS_JSON for one in (folder, results)]
    return next((path for path in places if path.is_file()), None)


def files_beside(board_folder: Path, files: Mapping[str, str]) -> dict[str, str]:
    """Paths relative to the leaderboard's folder, so that both can be moved together."""
    return {team: os.path.relpath(_without_links(Path(path)), board_folder.resolve()) for team, path in files.items()}


def _without_links(file: Path) -> Path:
    """The path with the links of its folder resolved, so that `..` means the same everywhere; the file may be one."""
    return file.parent.resolve() / file.name
