"""`postprocessing.json` for the later steps, the report and the console; loads no network library."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, field_serializer

from baseline.cache import load_cached
from baseline.work import WorkFolders
from contract.documents import Document, parse_document, read_document
from contract.editions import Edition
from contract.errors import HecktorError, ModelPackageError
from contract.io.files import read_json
from contract.packages import NO_RULES, PostprocessingRules

# Increment when the same probabilities give other rules, masks or features.
FORMAT_VERSION: Final[Literal[5]] = 5
SCORE: Final = "score"


class GainInterval(Document):
    """The difference that the rules make, with its 95% interval."""

    value: float
    ci95_low: float | None
    ci95_high: float | None


class RuleGain(Document):
    """A metric of the masks without and with rules."""

    unfiltered: float
    filtered: float
    difference: GainInterval


class PostprocessingRecord(Document):
    """The content of `postprocessing.json`.

    Attributes:
        rules: found on all patients, for the package alone; empty with the reason in `why_not`.
        patients: number of patients with a reference.
        weights: of each metric in the score.
        titles: of the metrics.
        cross_fitted: gain of each metric with folds and with centres left out.
        rules_by_group: rules found without each fold, which its out-of-fold masks have, and without each centre.
        made_from: digest of all inputs.
    """

    format_version: Literal[5]
    edition: str
    rules: PostprocessingRules = NO_RULES
    patients: int
    why_not: str
    weights: dict[str, float] = Field(default_factory=dict)
    titles: dict[str, str] = Field(default_factory=dict)
    cross_fitted: dict[str, dict[str, RuleGain]] = Field(default_factory=dict)
    rules_by_group: dict[str, dict[str, PostprocessingRules]] = Field(default_factory=dict)
    made_from: str

    @field_serializer("rules")
    def _plain_rules(self, rules: PostprocessingRules) -> dict[str, Any]:
        return rules.as_json()

    @field_serializer("rules_by_group")
    def _plain_groups(self, groups: Mapping[str, Mapping[str, PostprocessingRules]]) -> dict[str, Any]:
        return {split: {name: one.as_json() for name, one in rules.items()} for split, rules in groups.items()}


def read_record(path: Path) -> PostprocessingRecord:
    """Read `postprocessing.json`. Raises `ModelPackageError` for rules that the algorithm could not apply."""
    return read_document(path, PostprocessingRecord, error=ModelPackageError)


def current_record(work: WorkFolders) -> PostprocessingRecord | None:
    """The content of `postprocessing.json` if the current masks and features follow it; None otherwise."""
    return _followed(work.postprocessing_json, work.features_json)


def _followed(path: Path, features_json: Path) -> PostprocessingRecord | None:
    if not path.is_file():
        return None
    record = read_record(path)
    return None if load_cached(features_json, record.made_from) is None else record


def recorded(work: WorkFolders, made_from: str) -> bool:
    """True if `postprocessing.json` holds the result of these inputs; a damaged or older one does not."""
    try:
        return work.postprocessing_json.is_file() and read_record(work.postprocessing_json).made_from == made_from
    except HecktorError:
        return False


def rules_in_use(work: WorkFolders) -> dict[str, Any] | None:
    """The rules of all patients behind the current masks and features, as plain data; None without any.

    Rules of earlier probabilities, or beside masks of the user's own, are not in use.
    """
    record = current_record(work)
    return None if record is None or record.why_not else record.rules.as_json()


def pack_rules(given: Path | None, heads: Path | None, edition: Edition) -> tuple[dict[str, Any], list[str]]:
    """The rules in a `postprocessing.json` or in a plain object of rules, and notes for the package's author.

    `heads` is the JSON file of the heads; they may have been fitted on masks after rules that are not packed.

    Raises:
        ModelPackageError: no rules that the algorithm could apply, or those of another edition.
    """
    if given is None:
        path = None if heads is None else heads.parent / "postprocessing.json"
        record = None if path is None else _followed(path, path.parent / "features.json")
        if path is None or record is None or record.why_not:
            return {}, []
        fault = "the heads were fitted after the postprocessing rules of"
        return {}, [f"{fault} {path.name}, which are not packed; add --postprocessing {path}"]
    content = read_json(given, error=ModelPackageError)
    if not isinstance(content, dict) or "rules" not in content:
        return parse_document(content, PostprocessingRules, given.name, error=ModelPackageError).as_json(), []
    record = parse_document(content, PostprocessingRecord, given.name, error=ModelPackageError)
    if record.edition != edition.name:
        raise ModelPackageError(given.name, f"found edition {record.edition!r}", repr(edition.name))
    rules = record.rules.as_json()
    return rules, [] if rules else [f"no postprocessing rules from {given.name}: {record.why_not}"]


def change_text(gain: GainInterval) -> str:
    """A difference with its interval in words."""
    if gain.ci95_low is None or gain.ci95_high is None:
        return f"{gain.value:+z.4f}"
    return f"{gain.value:+z.4f} ({gain.ci95_low:+z.4f} to {gain.ci95_high:+z.4f})"


def postprocessing_lines(work: WorkFolders) -> str:
    """Lines for the console: each minimum volume, and the gain of the score with its interval."""
    path = work.postprocessing_json
    record = parse_document(work.read(path), PostprocessingRecord, path.name, error=ModelPackageError)
    if record.why_not:
        return f"no postprocessing rules: {record.why_not}"
    lines = ["postprocessing rules, for the package:"]
    lines += [f"  {PostprocessingRules.describe_rule(rule)}: {value}" for rule, value in record.rules.as_json().items()]
    for split, figures in record.cross_fitted.items():
        one = figures[SCORE]
        lines.append(
            f"  score, volumes found without the patient's {split[:-1]}: {one.unfiltered:z.4f} to {one.filtered:z.4f}, "
            f"difference {change_text(one.difference)}"
        )
    lines.append("  out-of-fold masks, features and figures have the volumes found without the patient's fold")
    return "\n".join(lines)
