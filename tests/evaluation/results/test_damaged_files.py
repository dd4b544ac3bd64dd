"""A damaged metrics.json is ranked or refused with one line, without a stack trace."""

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
from tests.damage import ABSENT, list_paths, replace_at

KINDS = ("masks", "risks", "classes", "four_answers")
JUNK = st.one_of(
    st.sampled_from([ABSENT, None, True, 0, -1, 0.5, 10**400, 1e308, float("nan"), "", "1", "\ud800", [], {}, [None]]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=6,
    ),
)


@pytest.mark.parametrize("kind", KINDS)
def test_damage_in_any_place_is_refused_or_harmless(valid_metrics, kind):
    """Every place is damaged once with a value of another type, and random places with random values."""
    valid = valid_metrics(kind)
    paths = list(list_paths(valid))
    outcomes, lines = set(), set()

    @settings(max_examples=60)
    @given(st.sampled_from(paths), JUNK, st.booleans())
    @example(("provenance", "seed"), "abc", False)
    @example(("provenance", "seed"), -1, False)
    @example(("cases",), None, False)
    @example(("results", 0, "case"), "\ud800", False)
    def damage(path, junk, with_another_team):
        content = replace_at(valid_metrics(kind), path, junk)
        other_teams = {"sound": valid_metrics(kind)} if with_another_team else {}
        try:
            rank({"damaged": content, **other_teams}, bootstraps=3)
            outcomes.add("ranked")
        except HecktorError as problem:
            outcomes.add("refused")
            lines.add(problem.message.count("\n"))

    damage()
    for path, junk in zip(paths, itertools.cycle(({}, 10**400, "x", None)), strict=False):
        with contextlib.suppress(HecktorError):
            rank({"damaged": replace_at(valid_metrics(kind), path, junk)}, bootstraps=0)
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
