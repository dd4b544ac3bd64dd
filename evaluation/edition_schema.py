"""The JSON Schema of edition profiles, made from the rules in the code, for editors and other tools."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from contract.tasks import TASKS
from evaluation.editions.profile import FORMAT, TIE_RULES
from evaluation.editions.rules import LOWER_IS_BETTER, METRICS_OF_KIND, RULES_OF_KIND, WITHOUT_GOOD_END, Rules
from evaluation.editions.schemes import COMBINATIONS, MAX_WEIGHT, WEIGHTED


def edition_schema() -> dict[str, Any]:
    """The schema (draft 2020-12).

    `parse_edition` checks all of it, and more: that ranked metrics are measured, that rankings name such metrics, that
    the one in force exists, and that there are as many weights as parts.
    """
    text = {"type": "string", "minLength": 1}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "An edition of the challenge",
        **_object({"format": {"const": FORMAT}, "name": text, "title": text, "tasks": {"$ref": "#/$defs/tasks"}}),
        "$defs": {
            "tasks": {
                "type": "object",
                "minProperties": 1,
                "additionalProperties": False,
                "properties": {
                    task.name: {"oneOf": [{"$ref": f"#/$defs/{kind}"} for kind in RULES_OF_KIND]} for task in TASKS
                },
            },
            "scheme": {
                "description": "a metric's name; borda, mean_rank: by the (weighted) sum or mean of ranks; "
                "median_rank: by their median; lexicographic: the next breaks ties",
                "oneOf": [text, *map(_combination, COMBINATIONS)],
            },
            **{kind: _task(kind, rules) for kind, rules in RULES_OF_KIND.items()},
        },
    }


_SCHEMES: dict[str, Any] = {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/scheme"}}


def _combination(word: str) -> dict[str, Any]:
    found = _object({word: _SCHEMES})
    if word in WEIGHTED:
        found["properties"] |= {
            "weights": {"type": "array", "items": {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_WEIGHT}}
        }
    return found


def _task(kind: str, rules: type[Rules]) -> dict[str, Any]:
    schemes = {"type": "object", "minProperties": 1, "additionalProperties": {"$ref": "#/$defs/scheme"}}
    return _object(
        {
            "kind": {"const": kind},
            "metrics": {
                "type": "object",
                "minProperties": 1,
                "additionalProperties": False,
                "properties": {name: _metric(name) for name in METRICS_OF_KIND[kind] if name not in WITHOUT_GOOD_END},
            },
            "rules": _object({field.name: _rule(rules, field.name) for field in fields(rules)}),
            "ranking": _object({"official": {"type": "string"}, "ties": {"enum": list(TIE_RULES)}, "schemes": schemes}),
        }
    )


def _metric(name: str) -> dict[str, Any]:
    return _object(
        {"title": {"type": "string", "minLength": 1}, "higher_is_better": {"const": name not in LOWER_IS_BETTER}}
    )


def _rule(rules: type[Rules], name: str) -> dict[str, Any]:
    if name in rules.CHOICES:
        return {"enum": list(rules.CHOICES[name])}
    low, high = rules.RANGES[name]
    return {"type": "number", "minimum": low, "exclusiveMaximum": high}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(properties),
        "properties": properties,
    }
