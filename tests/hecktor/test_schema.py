"""The shipped JSON schemas describe the shipped files."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.files import read_json
from hecktor import schema

ROOT = Path(schema.__file__).parents[1]
SHIPPED = Path(schema.__file__).with_name("schemas")


def test_the_command_writes_a_schema_for_each_document(tmp_path: Path) -> None:
    assert schema.main(["--output", str(tmp_path)]) == 0
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == sorted(path.name for path in SHIPPED.iterdir())


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("edition", "contract/editions/*.json"),
        ("profile", "evaluation/editions/*.json"),
        ("manifest", "algorithm/default_model/*/manifest.json"),
    ],
)
def test_every_key_of_a_shipped_file_is_in_its_schema(name: str, pattern: str) -> None:
    properties = read_json(SHIPPED / f"{name}.schema.json")["properties"]
    files = list(ROOT.glob(pattern))
    assert files
    for path in files:
        assert set(read_json(path)) <= set(properties), path.name
