"""A damaged metrics.json is ranked or refused with one line, and never ends in a stack trace."""

from __future__ import annotations

import contextlib
import itertools
import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from contract.errors import HecktorError
from evaluation.api import rank
from evaluation.ranking.cli import main

KINDS = ("masks", "risks", "classes", "four_answers")
NOTHING = object()
JUNK = st.one_of(
    st.sampled_from([NOTHING, None, True, 0, -1, 0.5, 10**400, 1e308, float("nan"), "", "1", "\ud800", [], {}, [None]]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=6,
    ),
)


def places(value, path=()):
    """The path to every value inside a JSON document."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield (*path, key)
        yield from places(inner, (*path, key))


def damaged(content, path, junk):
    """The content with `junk` in the place, or without the place for NOTHING."""
    inner = content
    for key in path[:-1]:
        inner = inner[key]
    if junk is NOTHING:
        del inner[path[-1]]
    else:
        inner[path[-1]] = junk
    return content


@pytest.mark.parametrize("kind", KINDS)
def test_damage_in_any_place_is_refused_or_harmless(valid_metrics, kind):
    """Every place is damaged once with a value of another type, and random places with random values."""
    valid = valid_metrics(kind)
    paths = list(places(valid))
    outcomes, lines = set(), set()

    @settings(max_examples=60)
    @given(st.sampled_from(paths), JUNK, st.booleans())
    @example(("provenance", "seed"), "abc", False)
    @example(("provenance", "seed"), -1, False)
    @example(("cases",), None, False)
    @example(("results", 0, "case"), "\ud800", False)
    def damage(path, junk, with_another_team):
        content = damaged(valid_metrics(kind), path, junk)
        others = {"sound": valid_metrics(kind)} if with_another_team else {}
        try:
            rank({"damaged": content, **others}, bootstraps=3)
            outcomes.add("ranked")
        except HecktorError as problem:
            outcomes.add("refused")
            lines.add(problem.message.count("\n"))

    damage()
    for path, junk in zip(paths, itertools.cycle(({}, 10**400, "x", None)), strict=False):
        with contextlib.suppress(HecktorError):
            rank({"damaged": damaged(valid_metrics(kind), path, junk)}, bootstraps=0)
    assert outcomes == {"ranked", "refused"}
    assert lines == {0}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"value":', '"infinite": 5, "value":'),
        ('"case": "A"', '"case": null'),
        ('"intersection_voxels": 4', f'"intersection_voxels": -1{"0" * 400}'),
        ('"intersection_voxels": 4', f'"intersection_voxels": 1{"0" * 5000}'),
        ('"dsc": 0.5', '"dsc": NaN'),
        ('"dsc": 0.5', '"dsc": 1e999'),
        ('"options": {', '"options": {"a": ' + "[" * 300 + "]" * 300 + ", "),
        ('"options": {', '"options": {"a": ' + "[" * 3000 + "]" * 3000 + ", "),
    ],
)
def test_damaged_files_are_refused_by_the_command(valid_metrics, tmp_path, old, new):
    text = json.dumps(valid_metrics("masks"))
    assert old in text
    path = tmp_path / "team" / "metrics.json"
    path.parent.mkdir()
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(HecktorError, match=r"metrics\.json"):
        main(["--task", "1", str(path), "--output", str(tmp_path / "board"), "--bootstraps", "3"])
    assert not (tmp_path / "board").exists()
