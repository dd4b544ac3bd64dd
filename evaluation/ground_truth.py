"""The reference: one mask a case, or a table of targets. It alone decides which cases exist."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar

from contract.errors import GroundTruthError
from contract.images import image_suffix, list_images

Target = TypeVar("Target")

ID_COLUMN: Final = "PatientID"
RELAPSE_COLUMN: Final = "Relapse"
RFS_COLUMN: Final = "RFS"
HPV_COLUMN: Final = "HPV Status"
CT_MARK: Final = "__CT"

_MISSING: Final = frozenset({"", "nan", "na", "n/a", "none", "null"})


@dataclass(frozen=True)
class Reference(Generic[Target]):
    """Targets by case, and the cases that the reference names without a target: these are not evaluated."""

    targets: Mapping[str, Target]
    without_target: tuple[str, ...] = ()


@dataclass(frozen=True)
class FollowUp:
    """Time to recurrence (`relapse`) or to the end of follow-up, in days."""

    rfs_days: float
    relapse: bool


def case_of(image_name: str) -> str:
    """The case of an image's file name: `CHUM-001.mha` and `CHUM-001__CT.nii.gz` are both `CHUM-001`."""
    name = Path(image_name).name
    suffix = image_suffix(Path(name))
    stem = name[: -len(suffix)] if suffix else name
    return stem.removesuffix(CT_MARK)


def read_mask_folder(folder: Path) -> Reference[Path]:
    """The reference masks `<case>.mha` or `<case>.nii.gz` in a folder, by case.

    Raises:
        GroundTruthError: no folder, no mask, or two masks of one case.
    """
    _check_folder(folder)
    masks: dict[str, Path] = {}
    for path in list_images(folder):
        case = case_of(path.name)
        if case in masks:
            raise GroundTruthError(f"ground truth: {masks[case].name} and {path.name}, expected one mask a case")
        masks[case] = path
    if not masks:
        raise GroundTruthError("ground truth: no image found, expected one mask a case, <case>.mha or <case>.nii.gz")
    return Reference(dict(sorted(masks.items())))


def read_follow_up(folder: Path) -> Reference[FollowUp]:
    """Recurrence and follow-up time from the CSV file with the columns PatientID, Relapse and RFS (days).

    Raises:
        GroundTruthError: no or several such files, a patient twice, or a value that cannot be.
    """

    def parse(row: Mapping[str, str], where: str) -> FollowUp | None:
        days = _number(row[RFS_COLUMN], f"{where}: {RFS_COLUMN}", "days, 0 or more")
        relapse = _flag(row[RELAPSE_COLUMN], f"{where}: {RELAPSE_COLUMN}")
        if days is None or relapse is None:
            return None
        if days < 0:
            raise GroundTruthError(f"{where}: {RFS_COLUMN} {days:g}, expected days, 0 or more")
        return FollowUp(days, relapse)

    return _read_table(folder, (RELAPSE_COLUMN, RFS_COLUMN), parse)


def read_hpv_status(folder: Path) -> Reference[bool]:
    """HPV status (True = positive) from the CSV file with the columns PatientID and HPV Status.

    Raises:
        GroundTruthError: as `read_follow_up`.
    """
    return _read_table(folder, (HPV_COLUMN,), lambda row, where: _flag(row[HPV_COLUMN], f"{where}: {HPV_COLUMN}"))


def _read_table(
    folder: Path, columns: tuple[str, ...], parse: Callable[[Mapping[str, str], str], Target | None]
) -> Reference[Target]:
    path, rows = _table_with((ID_COLUMN, *columns), folder)
    targets: dict[str, Target] = {}
    without: list[str] = []
    for number, row in enumerate(rows, start=2):
        case = row[ID_COLUMN].strip()
        where = f"{path.name}, line {number}"
        if not case:
            raise GroundTruthError(f"{where}: no {ID_COLUMN}, expected the patient's identifier")
        if case in targets or case in without:
            raise GroundTruthError(f"{where}: {case} stands twice, expected each patient once")
        target = parse(row, where)
        if target is None:
            without.append(case)
        else:
            targets[case] = target
    if not targets:
        raise GroundTruthError(f"{path.name}: no patient with {' and '.join(columns)}, expected at least one")
    return Reference(dict(sorted(targets.items())), tuple(sorted(without)))


def _table_with(columns: tuple[str, ...], folder: Path) -> tuple[Path, list[dict[str, str]]]:
    _check_folder(folder)
    wanted = f"expected one CSV file with the columns {', '.join(columns)}"
    found = []
    for path in sorted(folder.glob("*.csv")):
        header, rows = _read_csv(path)
        if set(columns) <= set(header):
            found.append((path, rows))
    if len(found) != 1:
        names = ", ".join(path.name for path, _ in found) or "none"
        raise GroundTruthError(f"ground truth: found {names}, {wanted}")
    return found[0]


def _read_csv(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (UnicodeDecodeError, OSError):
        raise GroundTruthError(f"{path.name}: cannot be read as UTF-8 text, expected a CSV file") from None
    first = text.partition("\n")[0]
    delimiter = ";" if first.count(";") > first.count(",") else ","
    reader = csv.DictReader(io.StringIO(text), delimiter=delimiter, skipinitialspace=True)
    header = [name.strip() for name in reader.fieldnames or []]
    reader.fieldnames = header
    rows = [row for row in reader if any(row.values())]
    for row in rows:
        if None in row or None in row.values():
            raise GroundTruthError(f"{path.name}: a line with another number of fields than its {len(header)} columns")
    return header, rows


def _number(text: str, where: str, expected: str) -> float | None:
    if text.strip().lower() in _MISSING:
        return None
    try:
        value = float(text.strip().replace(",", "."))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise GroundTruthError(f"{where} {text[:40]!r}, expected {expected}")
    return value


def _flag(text: str, where: str) -> bool | None:
    value = _number(text, where, "0 or 1")
    if value is None:
        return None
    if value not in {0.0, 1.0}:
        raise GroundTruthError(f"{where} {text[:40]!r}, expected 0 or 1")
    return value == 1.0


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise GroundTruthError(f"ground truth: no folder {folder.name!r}, expected the reference data in it")
