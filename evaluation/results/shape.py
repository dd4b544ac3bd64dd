"""The shape of a metrics.json: every part has its type, so that readers need not expect anything else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from contract.editions.values import described, is_integer, is_number, is_text
from contract.errors import HecktorError

METRICS_FORMAT: Final = 1
FIGURES: Final = ("value", "ci95_low", "ci95_high")
_PARTS: Final = {"aggregates": dict, "provenance": dict, "cases": dict, "results": list, "warnings": list}
_Check = tuple[Callable[[Any], bool], str]


def check_shape(content: Any, where: str) -> None:
    """Raise HecktorError, which begins with `where`, for anything but the content of a metrics.json."""
    for key, kind in _PARTS.items():
        if not isinstance(content, dict) or not isinstance(content.get(key), kind):
            name = "object" if kind is dict else "list"
            raise HecktorError(where, f"no {name} `{key}`", "a metrics.json of `hecktor evaluate`")
    stated = content["provenance"].get("format")
    if not is_integer(stated) or stated != METRICS_FORMAT:
        raise HecktorError(where, f"format {stated!r:.60}", f"{METRICS_FORMAT}")
    _check_known(content["provenance"], _PROVENANCE, f"{where}: provenance")
    _check_known(content["cases"], _CASES, f"{where}: cases")
    _check_known(content, _OTHERS, where)
    for name, figures in content["aggregates"].items():
        check_figures(figures, f"{where}: {name}")
    _check_results(content["results"], where)


def _check_known(content: Mapping[str, Any], checks: Mapping[str, _Check], where: str) -> None:
    for key, (is_valid, expected) in checks.items():
        if key in content and not is_valid(content[key]):
            raise HecktorError(f"{where}.{key}", f"found {described(content[key])}", expected)
    absent = [key for key in ("task", "edition", "options") if checks is _PROVENANCE and key not in content]
    if absent:
        raise HecktorError(where, f"no {absent[0]}", "the task, edition and options of the evaluation")


def check_figures(figures: Any, where: str) -> None:
    """Raise HecktorError, which begins with `where`, for anything but a value with its interval."""
    if not isinstance(figures, dict) or not set(FIGURES) <= set(figures):
        raise HecktorError(where, f"found {described(figures)}", f"an object with {', '.join(FIGURES)}")
    infinite = figures.get("infinite", [])
    if not _are_texts(infinite) or any(figures.get(name) is not None for name in infinite):
        raise HecktorError(f"{where}.infinite", f"found {described(infinite)}", "a list of figures that are null")
    for key in FIGURES:
        if figures[key] is not None and not is_number(figures[key]):
            raise HecktorError(f"{where}.{key}", f"found {described(figures[key])}", "a finite number or null")
    low, high = figures["ci95_low"], figures["ci95_high"]
    if low is not None and high is not None and low > high:
        raise HecktorError(where, f"an interval from {low:.6g} to {high:.6g}", "its lower end first")


def _check_results(rows: list[Any], where: str) -> None:
    cases: set[str] = set()
    for number, row in enumerate(rows, start=1):
        case = row.get("case") if isinstance(row, dict) else None
        if not is_text(case):
            raise HecktorError(f"{where}: results", f"row {number} has no case", "the name of its case")
        if case in cases:
            raise HecktorError(f"{where}, {case}", "two rows", "one row a case")
        cases.add(str(case))


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _is_count(value: Any) -> bool:
    return is_integer(value) and value >= 0


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | bool) or is_number(value)


def _are_options(value: Any) -> bool:
    """Rules by name, or by answer and name."""
    if not isinstance(value, dict):
        return False
    return all(map(_is_plain, (one for rules in value.values() for one in _leaves(rules))))


def _leaves(rules: Any) -> list[Any]:
    return list(rules.values()) if isinstance(rules, dict) else [rules]


def _are_failures(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) and is_text(one.get("case")) for one in value)


def _are_centres(value: Any) -> bool:
    """Every centre's number of cases, their names (not in public files), and the value of each metric."""
    return isinstance(value, dict) and all(
        isinstance(centre, dict)
        and _is_count(centre.get("cases"))
        and _are_texts(centre.get("names", []))
        and _are_values(centre.get("aggregates"))
        for centre in value.values()
    )


def _are_values(figures: Any) -> bool:
    if not isinstance(figures, dict) or not all(isinstance(one, dict) for one in figures.values()):
        return False
    return all(one.get("value") is None or is_number(one["value"]) for one in figures.values())


def _are_reasons(value: Any) -> bool:
    return isinstance(value, dict) and all(_are_texts(cases) or _is_count(cases) for cases in value.values())


_TEXT: Final[_Check] = (is_text, "a text")
_COUNT: Final[_Check] = (_is_count, "a whole number, 0 or more")
_CASE_LIST: Final[_Check] = (_are_texts, "a list of cases")
_PROVENANCE: Final[Mapping[str, _Check]] = {
    "version": _TEXT,
    "task": _TEXT,
    "edition": _TEXT,
    "options": (_are_options, "an object of rules"),
    "seed": _COUNT,
    "bootstraps": _COUNT,
    "case_set_sha256": _TEXT,
}
_OTHERS: Final[Mapping[str, _Check]] = {
    "warnings": (_are_texts, "a list of texts"),
    "centres": (_are_centres, "the cases, names and aggregates of each centre"),
}
_CASES: Final[Mapping[str, _Check]] = {
    "in_ground_truth": _COUNT,
    "used": _COUNT,
    "answered": _COUNT,
    "missing": _CASE_LIST,
    "failed": (_are_failures, "a list of objects with a case and why"),
    "skipped": (_are_reasons, "the cases, or their number, by reason"),
    "unknown": _CASE_LIST,
    "duplicate": _CASE_LIST,
}
