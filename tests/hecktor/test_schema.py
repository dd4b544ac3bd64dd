"""The shipped schema of an edition, which editors read."""

from __future__ import annotations

from contract.documents import build_json_schema
from contract.io.files import read_json
from evaluation.editions.document import ScoredEdition
from hecktor.new import SCHEMA


def test_the_shipped_schema_equals_the_class() -> None:
    """Update it by `write_json(SCHEMA, build_json_schema(ScoredEdition))`."""
    assert read_json(SCHEMA) == build_json_schema(ScoredEdition)
