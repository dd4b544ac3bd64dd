"""Check that the fitted heads belong to the current masks, patients and outcome network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from baseline.cache import key_of
from baseline.heads.document import FORMAT_VERSION
from baseline.outcome.folds import outcome_stamp
from baseline.release.cases import ReleaseCase, read_cases
from baseline.release.splits import read_splits
from baseline.work import WorkFolders
from contract.errors import HecktorError

# What is said of heads that are not current.
OUTDATED: Final = "fitted by another version, or before masks, patients or the outcome network changed"


def heads_key(work: WorkFolders, cases: Sequence[ReleaseCase]) -> str:
    """Digest of the inputs of the heads."""
    made_from = {"cases": [case.as_json() for case in cases], "seed": read_splits(work).seed, "version": FORMAT_VERSION}
    made_from |= outcome_stamp(work)
    return key_of((work.features_json,), made_from)


def heads_are_current(work: WorkFolders) -> bool:
    """False if another version fitted the heads, or masks, patients or the outcome network have changed since.

    Raises:
        HecktorError: there are no heads.
    """
    made_from, cases = work.read(work.cross_validation_json).get("made_from"), read_cases(work)
    return work.features_json.is_file() and made_from == heads_key(work, cases)


def check_heads(work: WorkFolders) -> None:
    """Raise HecktorError unless the heads are current."""
    if not heads_are_current(work):
        raise HecktorError(work.heads_json.name, OUTDATED, f"`hecktor train heads{work.name_option}` again")
