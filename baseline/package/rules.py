"""The rules on lesions of a package that is made from nnU-Net's results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from algorithm.decisions.rules import read_decisions
from baseline.cache import load_cached
from contract.editions import Edition
from contract.errors import ModelPackageError
from contract.files import read_json


def packed_rules(decisions: Path | None, heads: Path | None, edition: Edition) -> tuple[dict[str, Any], list[str]]:
    """The rules in a `decisions.json` or in a plain object of rules, and notes for the package's author.

    `heads` is the JSON file of the heads; they may have been fitted on masks after rules that are not packed.

    Raises:
        ModelPackageError: no rules that the algorithm could apply, or those of another edition.
    """
    if decisions is None:
        unpacked = None if heads is None else _rules_of_heads(heads)
        fault = "the heads were fitted after the rules on lesions of {}, which are not packed; add --decisions {}"
        return {}, [] if unpacked is None else [fault.format(unpacked.name, unpacked)]
    content = read_json(decisions, error=ModelPackageError)
    if not isinstance(content, dict) or "rules" not in content:
        return read_decisions(content, decisions.name).as_json(), []
    if (found := content.get("edition", edition.name)) != edition.name:
        raise ModelPackageError(decisions.name, f"found edition {found!r}", repr(edition.name))
    rules = read_decisions(content["rules"], decisions.name).as_json()
    reason = content.get("why_not") or "it holds none"
    return rules, [] if rules else [f"no rules on lesions from {decisions.name}: {reason}"]


def _rules_of_heads(heads: Path) -> Path | None:
    """The `decisions.json` beside `heads.json` if the features of the heads follow its rules."""
    path = heads.parent / "decisions.json"
    if not path.is_file():
        return None
    content = read_json(path)
    followed = load_cached(heads.parent / "features.json", content.get("made_from", "")) is not None
    return path if content.get("rules") and followed else None
