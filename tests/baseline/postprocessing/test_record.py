"""Rules of `hecktor package --postprocessing`, notes on absent rules, and refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from baseline.cache import store_cached
from baseline.postprocessing.record import pack_rules
from contract.editions import load_edition
from contract.errors import ModelPackageError
from contract.io.files import write_json
from tests.baseline.postprocessing.patients import make_record_json

RULES = {"gtvn_volume_ml": 0.5}
EDITION = load_edition("hecktor2025")


def test_a_file_without_rules_is_noted_with_its_reason(tmp_path: Path) -> None:
    """`hecktor train postprocess` writes such a file if no rule gains."""
    file = tmp_path / "postprocessing.json"
    write_json(file, make_record_json({}, "no rule gains enough"))
    note = "no postprocessing rules from postprocessing.json: no rule gains enough"
    assert pack_rules(file, None, EDITION) == ({}, [note])
    write_json(file, make_record_json(RULES))
    assert pack_rules(file, None, EDITION) == (RULES, [])


def test_a_file_of_an_older_format_is_refused_with_the_step_to_run(tmp_path: Path) -> None:
    file = tmp_path / "postprocessing.json"
    write_json(file, make_record_json(RULES, format_version=5))
    message = r"^postprocessing\.json\.format_version: found 5, expected 6; run `hecktor train postprocess` again$"
    with pytest.raises(ModelPackageError, match=message):
        pack_rules(file, None, EDITION)


def test_rules_of_another_edition_are_refused(tmp_path: Path) -> None:
    """Rules depend on the score of their edition."""
    write_json(tmp_path / "postprocessing.json", make_record_json(RULES, edition="hecktor2026"))
    with pytest.raises(ModelPackageError, match=r"^postprocessing\.json: found edition 'hecktor2026'"):
        pack_rules(tmp_path / "postprocessing.json", None, EDITION)


def test_heads_of_filtered_masks_without_the_rules_are_noted(tmp_path: Path) -> None:
    """Heads that `hecktor train heads --masks` fitted do not follow the rules, and have no note."""
    heads, rules_json = tmp_path / "heads.json", tmp_path / "postprocessing.json"
    assert pack_rules(None, heads, EDITION) == ({}, [])
    write_json(rules_json, make_record_json(RULES))
    store_cached(tmp_path / "features.json", "key", {"A-1": {}})
    rules, (note,) = pack_rules(None, heads, EDITION)
    assert rules == {}
    assert note.startswith(
        "the heads were fitted on masks that were filtered by the postprocessing rules of postprocessing.json, which are not packed; "
    )
    assert note.endswith(f"add --postprocessing {rules_json}")
    store_cached(tmp_path / "features.json", "masks of the user", {"A-1": {}})
    assert pack_rules(None, heads, EDITION) == ({}, [])
