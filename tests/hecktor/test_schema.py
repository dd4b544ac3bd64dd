"""The shipped JSON schemas are those of the documents, and they describe the shipped files."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.files import read_json
from hecktor import schema

ROOT = Path(schema.__file__).parents[1]
SHIPPED = Path(schema.__file__).with_name("schemas")


def test_the_command_writes_the_shipped_schemas(tmp_path: Path) -> None:
    """After a change of a document, `hecktor schema` makes them anew."""
    assert schema.main(["--output", str(tmp_path)]) == 0
    names = sorted(path.name for path in tmp_path.iterdir())
    assert (
        names
        == sorted(path.name for path in SHIPPED.iterdir())
        == [f"{name}.schema.json" for name in sorted(schema.DOCUMENTS)]
    )
    assert [name for name in names if read_json(tmp_path / name) != read_json(SHIPPED / name)] == []


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("edition", "contract/editions/*.json"),
        ("profile", "evaluation/editions/*.json"),
        ("manifest", "algorithm/default_model/*/manifest.json"),
    ],
)
def test_every_key_of_a_shipped_file_is_in_its_schema(name: str, pattern: str) -> None:
    properties = schema.schema(name)["properties"]
    files = list(ROOT.glob(pattern))
    assert files
    for path in files:
        assert set(read_json(path)) <= set(properties), path.name


def test_a_document_of_several_kinds_lists_each() -> None:
    assert [one["$ref"] for one in schema.schema("head")["anyOf"]] == [
        f"#/$defs/{name}"
        for name in ("LinearHead", "EnsembleHead", "OwnHead", "ClassHead", "ClassEnsembleHead", "OwnClassHead")
    ]
