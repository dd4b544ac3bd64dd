"""Read `decisions.json` for the later steps, the report and the console; loads no network library."""

from __future__ import annotations

from typing import Any, Final

from algorithm.decisions.rules import WORDS, read_decisions
from baseline.cache import load_cached
from baseline.work import WorkFolders

SCORE: Final = "score"
GAIN_HEADS: Final = ("Rules found with", "Metric", "Undecided", "Decided", "Difference (95% interval)")


def current_document(work: WorkFolders) -> dict[str, Any] | None:
    """The content of `decisions.json` if the current masks and features follow it; None otherwise."""
    if not work.decisions_json.is_file():
        return None
    document: dict[str, Any] = work.read(work.decisions_json)
    return None if load_cached(work.features_json, document["made_from"]) is None else document


def rules_in_use(work: WorkFolders) -> dict[str, Any] | None:
    """The rules behind the current masks and features, as plain data; None without any.

    Rules of earlier probabilities, or beside masks of the user's own, are not in use.
    """
    document = current_document(work)
    if document is None or not document["rules"]:
        return None
    return read_decisions(document["rules"], work.decisions_json.name).as_json()


def gain_rows(work: WorkFolders) -> list[list[str]]:
    """A row of `GAIN_HEADS` for each metric, with rules found without the patient's fold, and without the centre."""
    document = work.read(work.decisions_json)
    rows = []
    for split, figures in document["cross_fitted"].items():
        for name, one in figures.items():
            low, high = one["difference"]["ci95_low"], one["difference"]["ci95_high"]
            gain = f"{one['difference']['value']:+.4f} ({low:+.4f} to {high:+.4f})"
            title = document["titles"].get(name, name)
            rows.append([f"{split} left out", title, f"{one['undecided']:.4f}", f"{one['decided']:.4f}", gain])
    return rows


def decision_lines(work: WorkFolders) -> str:
    """Summary for the console: each rule, and the gain of the score with its interval."""
    document = work.read(work.decisions_json)
    if document["why_not"]:
        return f"no decisions on lesions: {document['why_not']}"
    lines = [f"decisions on lesions ({document['settings']} settings, {document['seconds']:.0f} s):"]
    lines += [f"  {WORDS[rule]}: {value}" for rule, value in document["rules"].items()]
    for split, figures in document["cross_fitted"].items():
        one = figures[SCORE]
        change = one["difference"]
        lines.append(
            f"  score, rules found without the patient's {split[:-1]}: {one['undecided']:.4f} to {one['decided']:.4f} "
            f"(difference {change['value']:+.4f}, {change['ci95_low']:+.4f} to {change['ci95_high']:+.4f})"
        )
    return "\n".join(lines)
