"""The schema beside the docs is the code's own, and the packaged profiles have its shape."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contract.tasks import task_named
from evaluation.edition import known_editions, load_edition
from evaluation.edition_schema import edition_schema
from evaluation.rules import METRICS_OF_KIND, RULES_OF_KIND

DOCS = Path(__file__).parents[2] / "docs"


def test_the_written_schema_is_up_to_date():
    assert json.loads((DOCS / "edition.schema.json").read_text()) == json.loads(json.dumps(edition_schema()))


@pytest.mark.parametrize("name", known_editions())
def test_packaged_profiles_spell_out_what_the_schema_requires(name):
    schema = edition_schema()["$defs"]
    for task, profile in load_edition(name).tasks.items():
        assert task_named(task).name == task
        described = schema[profile.kind]["properties"]
        assert set(profile.options) == set(described["rules"]["required"])
        assert set(profile.metrics) <= set(described["metrics"]["properties"])


def test_the_five_editions_are_there():
    assert set(known_editions()) == {"hecktor2020", "hecktor2021", "hecktor2022", "hecktor2025", "hntsmrg2024"}


def test_no_code_asks_for_an_edition_by_name():
    for path in (Path(__file__).parents[2] / "evaluation").rglob("*.py"):
        text = path.read_text().replace('DEFAULT_EDITION: Final = "hecktor2025"', "")
        assert not [name for name in known_editions() if f'"{name}"' in text], path.name


def test_every_rule_and_metric_is_documented():
    rules = (DOCS / "editions.md").read_text()
    pages = "\n".join(path.read_text() for path in (DOCS / "metrics").glob("*.md"))
    for kind, names in METRICS_OF_KIND.items():
        assert not [name for name in names if f"`{name}`" not in pages], kind
    for kind in RULES_OF_KIND.values():
        assert not [name for name in (*kind.CHOICES, *kind.RANGES) if f"`{name}`" not in rules]
