"""The shipped schema of an edition, which editors read."""

from __future__ import annotations

from contract.documents import json_schema
from contract.editions.edition import Edition
from contract.files import read_json
from hecktor.new import SCHEMA


def test_the_shipped_schema_is_that_of_the_class() -> None:
    """Otherwise: `write_json(SCHEMA, json_schema(Edition))`."""
    assert read_json(SCHEMA) == json_schema(Edition)
