"""The document `postprocessing.json`, which later steps and the report read; no network library is loaded here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, field_serializer

from baseline.cache import load_cached
from baseline.work import WorkFolders
from contract.documents import Document, parse_document
from contract.editions import Edition
from contract.errors import HecktorError, ModelPackageError
from contract.io.files import read_json
from contract.packages import NO_RULES, PostprocessingRules

# Increment when the same probabilities give other rules, masks or features.
FORMAT_VERSION: Final[Literal[6]] = 6
SCORE: Final = "score"


class GainInterval(Document):
    """Difference between a metric with and without the rules, with its 95% interval."""

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
        format_version: Version of the file.
        edition: Name of the edition.
        rules: Rules found on all patients, which only the package uses; empty if `why_not` has a reason.
        patients: Number of patients with a reference.
        why_not: Reason why there are no rules; empty if there are rules.
        weights: Weight of each metric in the score.
        titles: Titles of the metrics.
        cross_fitted: Gain of each metric with folds and with centres left out.
        rules_by_group: Rules found without each fold, which filter the fold's masks, and rules found without each
            centre.
        decisions: Reason why each rule was not accepted; empty for an accepted rule.
        made_from: Digest of all inputs.
    """

    format_version: Literal[6]
    edition: str
    rules: PostprocessingRules = NO_RULES
    patients: int
    why_not: str
    weights: dict[str, float] = Field(default_factory=dict)
    titles: dict[str, str] = Field(default_factory=dict)
    cross_fitted: dict[str, dict[str, RuleGain]] = Field(default_factory=dict)
    rules_by_group: dict[str, dict[str, PostprocessingRules]] = Field(default_factory=dict)
    decisions: dict[str, str] = Field(default_factory=dict)
    made_from: str

    def list_refused(self) -> list[tuple[str, str]]:
        """List the rules that were not accepted, each with the reason."""
        return [(rule, why) for rule, why in self.decisions.items() if why]

    @field_serializer("rules")
    def _write_rules(self, rules: PostprocessingRules) -> dict[str, Any]:
        return rules.as_json()

    @field_serializer("rules_by_group")
    def _write_groups(self, groups: Mapping[str, Mapping[str, PostprocessingRules]]) -> dict[str, Any]:
        return {
            split: {name: rules.as_json() for name, rules in rules_of.items()} for split, rules_of in groups.items()
        }


def read_record(path: Path) -> PostprocessingRecord:
    """Read `postprocessing.json`; raise `ModelPackageError` for rules that the algorithm cannot apply."""
    return _parse_record(read_json(path, error=ModelPackageError), path.name)


def _parse_record(content: object, name: str) -> PostprocessingRecord:
    """Parse the content of `postprocessing.json`; raise `ModelPackageError` if it cannot be used."""
    version = content.get("format_version", FORMAT_VERSION) if isinstance(content, dict) else FORMAT_VERSION
    if version != FORMAT_VERSION:
        expected = f"{FORMAT_VERSION}; run `hecktor train postprocess` again"
        raise ModelPackageError(f"{name}.format_version", f"found {version!r}", expected)
    return parse_document(content, PostprocessingRecord, name, error=ModelPackageError)


def load_current_record(work: WorkFolders) -> PostprocessingRecord | None:
    """Load `postprocessing.json` if the current masks and features belong to it; None otherwise."""
    return _load_if_current(work.postprocessing_json, work.features_json)


def _load_if_current(path: Path, features_json: Path) -> PostprocessingRecord | None:
    if not path.is_file():
        return None
    record = read_record(path)
    return None if load_cached(features_json, record.made_from) is None else record


def is_recorded(work: WorkFolders, made_from: str) -> bool:
    """Return whether `postprocessing.json` has the result of these inputs; a damaged or older file does not have it."""
    try:
        return work.postprocessing_json.is_file() and read_record(work.postprocessing_json).made_from == made_from
    except HecktorError:
        return False


def load_rules_in_use(work: WorkFolders) -> dict[str, Any] | None:
    """Load the rules of all patients that belong to the current masks and features, as plain data.

    None if there are no rules, or if the rules belong to earlier probabilities or the masks come from the user.
    """
    record = load_current_record(work)
    return None if record is None or record.why_not else record.rules.as_json()


def pack_rules(file: Path | None, heads: Path | None, edition: Edition) -> tuple[dict[str, Any], list[str]]:
    """Read the rules for a package, and make notes for the package's author.

    Args:
        file: A `postprocessing.json`, or a plain object of rules; None to pack no rules.
        heads: JSON file of the heads. They may have been fitted on masks that were filtered by rules.
        edition: Edition of the package.

    Raises:
        ModelPackageError: The algorithm cannot apply the rules, or they belong to another edition.
    """
    if file is None:
        path = None if heads is None else heads.parent / "postprocessing.json"
        record = None if path is None else _load_if_current(path, path.parent / "features.json")
        if path is None or record is None or record.why_not:
            return {}, []
        problem = "the heads were fitted on masks that were filtered by the postprocessing rules of"
        return {}, [f"{problem} {path.name}, which are not packed; add --postprocessing {path}"]
    content = read_json(file, error=ModelPackageError)
    if not isinstance(content, dict) or "rules" not in content:
        return parse_document(content, PostprocessingRules, file.name, error=ModelPackageError).as_json(), []
    record = _parse_record(content, file.name)
    if record.edition != edition.name:
        raise ModelPackageError(file.name, f"found edition {record.edition!r}", repr(edition.name))
    rules = record.rules.as_json()
    return rules, [] if rules else [f"no postprocessing rules from {file.name}: {record.why_not}"]


def format_change(gain: GainInterval) -> str:
    """Format a difference with its interval."""
    if gain.ci95_low is None or gain.ci95_high is None:
        return f"{gain.value:+z.4f}"
    return f"{gain.value:+z.4f} ({gain.ci95_low:+z.4f} to {gain.ci95_high:+z.4f})"


def summarise_postprocessing(work: WorkFolders) -> str:
    """Summarise each rule, and the gain of the score with its interval, for the console."""
    path = work.postprocessing_json
    record = _parse_record(work.read(path), path.name)
    if record.why_not:
        return f"no postprocessing rules: {record.why_not}"
    lines = ["postprocessing rules, for the package:"]
    lines += [f"  {PostprocessingRules.describe_rule(rule)}: {value}" for rule, value in record.rules.as_json().items()]
    lines += [
        f"  not accepted: {PostprocessingRules.describe_rule(rule)}: {why}" for rule, why in record.list_refused()
    ]
    for split, figures in record.cross_fitted.items():
        gain = figures[SCORE]
        lines.append(
            f"  score, limits found without the patient's {split[:-1]}: {gain.unfiltered:z.4f} to "
            f"{gain.filtered:z.4f}, difference {format_change(gain.difference)}"
        )
    lines.append("  out-of-fold masks, features and figures use the limits found without the patient's fold")
    return "\n".join(lines)
