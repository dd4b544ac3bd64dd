"""Read `postprocessing.json` for the later steps, the report and the console; loads no network library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from baseline.cache import load_cached
from baseline.work import WorkFolders
from contract.documents import parse_document
from contract.editions import Edition
from contract.errors import ModelPackageError
from contract.files import read_json
from contract.packages import PostprocessingRules

GAIN_HEADS: Final = ("Rules found with", "Metric", "Unfiltered", "Filtered", "Difference (95% interval)")


def stored_rules(document: Mapping[str, Any], name: str = "postprocessing.json") -> PostprocessingRules:
    """The rules of a document. Raises `ModelPackageError` for rules that the algorithm could not apply."""
    return parse_document(document["rules"], PostprocessingRules, name, error=ModelPackageError)


def current_document(work: WorkFolders) -> dict[str, Any] | None:
    """The content of `postprocessing.json` if the current masks and features follow it; None otherwise."""
    return _followed(work.postprocessing_json, work.features_json)


def _followed(path: Path, features_json: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    document: dict[str, Any] = read_json(path)
    return None if load_cached(features_json, document.get("made_from", "")) is None else document


def rules_in_use(work: WorkFolders) -> dict[str, Any] | None:
    """The rules behind the current masks and features, as plain data; None without any.

    Rules of earlier probabilities, or beside masks of the user's own, are not in use.
    """
    document = current_document(work)
    return stored_rules(document).as_json() if document is not None and document["rules"] else None


def packed_rules(given: Path | None, heads: Path | None, edition: Edition) -> tuple[dict[str, Any], list[str]]:
    """The rules in a `postprocessing.json` or in a plain object of rules, and notes for the package's author.

    `heads` is the JSON file of the heads; they may have been fitted on masks after rules that are not packed.

    Raises:
        ModelPackageError: no rules that the algorithm could apply, or those of another edition.
    """
    if given is None:
        path = None if heads is None else heads.parent / "postprocessing.json"
        document = None if path is None else _followed(path, path.parent / "features.json")
        if path is None or document is None or not document.get("rules"):
            return {}, []
        fault = "the heads were fitted after the postprocessing rules of"
        return {}, [f"{fault} {path.name}, which are not packed; add --postprocessing {path}"]
    content = read_json(given, error=ModelPackageError)
    if not isinstance(content, dict) or "rules" not in content:
        return stored_rules({"rules": content}, given.name).as_json(), []
    if (found := content.get("edition", edition.name)) != edition.name:
        raise ModelPackageError(given.name, f"found edition {found!r}", repr(edition.name))
    rules = stored_rules(content, given.name).as_json()
    reason = content.get("why_not") or "it holds none"
    return rules, [] if rules else [f"no postprocessing rules from {given.name}: {reason}"]


def gain_rows(document: Mapping[str, Any]) -> Iterator[list[str]]:
    """A row of `GAIN_HEADS` for each metric, with rules found without the patient's fold, and without the centre."""
    for split, figures in document["cross_fitted"].items():
        for name, one in figures.items():
            low, high = one["difference"]["ci95_low"], one["difference"]["ci95_high"]
            gain = f"{one['difference']['value']:+.4f} ({low:+.4f} to {high:+.4f})"
            title = document["titles"].get(name, name)
            yield [f"{split} left out", title, f"{one['unfiltered']:.4f}", f"{one['filtered']:.4f}", gain]


def postprocessing_lines(work: WorkFolders) -> str:
    """Lines for the console: each rule, and the gain of the score with its interval."""
    document = work.read(work.postprocessing_json)
    if document["why_not"]:
        return f"no postprocessing rules: {document['why_not']}"
    lines = [f"postprocessing rules ({document['settings']} settings, {document['seconds']:.0f} s):"]
    lines += [f"  {PostprocessingRules.words(rule)}: {value}" for rule, value in document["rules"].items()]
    for split, figures in document["cross_fitted"].items():
        one = figures["score"]
        change = one["difference"]
        lines.append(
            f"  score, rules found without the patient's {split[:-1]}: {one['unfiltered']:.4f} to "
            f"{one['filtered']:.4f} (difference {change['value']:+.4f}, {change['ci95_low']:+.4f} to "
            f"{change['ci95_high']:+.4f})"
        )
    return "\n".join(lines)
