"""The schema beside the docs is the code's own; it accepts the packaged profiles and refuses broken ones."""

from __future__ import annotations

import copy
import json
from importlib.resources import files
from pathlib import Path

import pytest

from contract.errors import HecktorError
from contract.tasks import task_named
from evaluation.edition_schema import edition_schema
from evaluation.editions.profile import known_editions, load_edition, parse_edition
from evaluation.editions.rules import METRICS_OF_KIND, RULES_OF_KIND

DOCS = Path(__file__).parents[2] / "docs"


def test_the_written_schema_is_up_to_date():
    assert json.loads((DOCS / "edition.schema.json").read_text()) == json.loads(json.dumps(edition_schema()))


KINDS = {"object": dict, "array": list, "string": str, "number": (int, float), "boolean": bool}


def accepts(schema, value, root):
    """Whether `value` keeps to the schema, for the keywords that ours uses; an unknown keyword is an error."""
    for word, told in schema.items():
        if word in {"$schema", "$defs", "title", "description"}:
            continue
        if not CHECKS[word](told, value, schema, root):
            return False
    return True


def is_a(kind, value):
    return isinstance(value, KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool))


def properties_fit(told, value, schema, root):
    return all(accepts(told[key], item, root) for key, item in value.items() if key in told)


def others_fit(told, value, schema, root):
    others = [item for key, item in value.items() if key not in schema.get("properties", {})]
    return not others if told is False else all(accepts(told, item, root) for item in others)


def same(first, second):
    """Equal as JSON: true is not 1, while 1.0 is."""
    return first == second and isinstance(first, bool) == isinstance(second, bool)


# JSON Schema's keywords speak only of values of their own type.
CHECKS = {
    "type": lambda told, value, schema, root: is_a(told, value),
    "const": lambda told, value, schema, root: same(told, value),
    "enum": lambda told, value, schema, root: any(same(one, value) for one in told),
    "minLength": lambda told, value, schema, root: not isinstance(value, str) or len(value) >= told,
    "minItems": lambda told, value, schema, root: not isinstance(value, list) or len(value) >= told,
    "minProperties": lambda told, value, schema, root: not isinstance(value, dict) or len(value) >= told,
    "minimum": lambda told, value, schema, root: not is_a("number", value) or value >= told,
    "maximum": lambda told, value, schema, root: not is_a("number", value) or value <= told,
    "exclusiveMinimum": lambda told, value, schema, root: not is_a("number", value) or value > told,
    "exclusiveMaximum": lambda told, value, schema, root: not is_a("number", value) or value < told,
    "required": lambda told, value, schema, root: not isinstance(value, dict) or set(told) <= set(value),
    "items": lambda told, value, schema, root: (
        not isinstance(value, list) or all(accepts(told, item, root) for item in value)
    ),
    "properties": lambda told, value, schema, root: (
        not isinstance(value, dict) or properties_fit(told, value, schema, root)
    ),
    "additionalProperties": lambda told, value, schema, root: (
        not isinstance(value, dict) or others_fit(told, value, schema, root)
    ),
    "oneOf": lambda told, value, schema, root: sum(accepts(one, value, root) for one in told) == 1,
    "$ref": lambda told, value, schema, root: accepts(root["$defs"][told.rpartition("/")[2]], value, root),
}


def written(name):
    return json.loads(files("evaluation.editions").joinpath(f"{name}.json").read_text())


def schema_accepts(profile):
    schema = json.loads((DOCS / "edition.schema.json").read_text())
    return accepts(schema, profile, schema)


@pytest.mark.parametrize("name", known_editions())
def test_the_written_schema_accepts_every_edition(name):
    assert schema_accepts(written(name))


SEG = ("tasks", "segmentation")
SCHEMES = (*SEG, "ranking", "schemes")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("format",), 2),
        (("surplus",), 1),
        (("title",), ""),
        (("tasks",), {}),
        (("tasks", "tnm"), {}),
        ((*SEG, "kind"), "survival"),
        ((*SEG, "rules", "connectivity"), 8),
        ((*SEG, "rules", "iou_strict"), 1),
        ((*SEG, "rules", "iou_threshold"), "0.3"),
        ((*SEG, "rules", "iou_threshold"), 1),
        ((*SEG, "rules", "surface_tolerance_mm"), -1),
        ((*SEG, "rules"), {}),
        ((*SEG, "metrics"), {}),
        ((*SEG, "metrics", "dice"), {"title": "Dice", "higher_is_better": True}),
        ((*SEG, "metrics", "gtvp_dsc_mean", "higher_is_better"), 1),
        ((*SEG, "metrics", "gtvp_dsc_mean", "higher_is_better"), False),
        (
            ("tasks", "hpv", "metrics", "calibration_in_the_large"),
            {"title": "Calibration", "higher_is_better": False},
        ),
        ((*SCHEMES, "flat_borda"), {"borda": ["gtvp_dsc_mean"], "weights": [1e7]}),
        ((*SEG, "ranking", "ties"), "random"),
        (SCHEMES, {}),
        ((*SCHEMES, "flat_borda"), {"borda": []}),
        ((*SCHEMES, "flat_borda"), {"mean": ["gtvp_dsc_mean"]}),
        ((*SCHEMES, "flat_borda"), {"borda": ["gtvp_dsc_mean"], "weights": [0]}),
        ((*SCHEMES, "flat_borda"), {"median_rank": ["gtvp_dsc_mean"], "weights": [1]}),
    ],
)
def test_schema_and_code_refuse_the_same_broken_editions(path, value):
    broken = written("hecktor2025")
    assert schema_accepts(copy.deepcopy(broken))
    place = broken
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert not schema_accepts(broken)
    with pytest.raises(HecktorError):
        parse_edition(broken, "broken.json")


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
