"""The declaration of HNTS-MRG 2024, and what an edition of MR may declare."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from contract.editions import load_edition
from contract.editions.inputs import CT_AND_PET
from contract.errors import HecktorError
from tests.damage import ABSENT, replace_at

DECLARED = json.loads((Path(__file__).parents[3] / "contract" / "editions" / "hntsmrg2024.json").read_text())


def test_two_algorithms_with_their_images_and_time() -> None:
    """HNTS-MRG 2024, 2.4 and 2.5: one MR before radiotherapy; during it two MR and two masks more; 20 minutes a case."""
    before, during = load_edition("hntsmrg2024").algorithms
    assert (before.name, before.modality, before.channels) == ("pre-rt", "MR", ("mr_before",))
    assert during.scan.slug == "mid-rt-t2w-head-neck"
    masks = ("mask_registered GTVp", "mask_registered GTVn")
    assert during.channels == ("mr_during", "mr_registered", *masks)
    assert [before.time_limit_s, during.time_limit_s] == [1200, 1200]
    assert load_edition().algorithms[0].channels == CT_AND_PET


def test_a_training_takes_one_task_where_networks_differ() -> None:
    edition = load_edition("hntsmrg2024")
    assert [task.name for task in edition.select_for_training("2").algorithms] == ["mid-rt"]
    with pytest.raises(HecktorError, match="--task: found none"):
        edition.select_for_training(None)
    with pytest.raises(HecktorError, match="--task: found '1'"):
        load_edition().select_for_training("1")


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("inputs", "mr_before", "modality"), "PET", ".inputs: found an object, expected inputs among ct, pet, ehr"),
        (("inputs", "mr_before", "modality"), None, ".inputs: found an object, expected MR or mask as the modality of"),
        (("inputs", "mr_before", "release"), "T2.nii.gz", "expected a path such as preRT/{id}_T2.nii.gz"),
        (("inputs", "ct"), {"slug": "ct", "title": "CT", "kind": "Image", "path": "ct"}, "not MR together with ct"),
        (
            ("clinical",),
            [{"name": "age_years", "key": "Age", "type": "years"}],
            "clinical variables if and only if ehr is an input",
        ),
        (("algorithms", 1, "inputs"), ["mask_before", "mr_during"], "expected an MR as the first input"),
    ],
)
def test_a_faulty_edition_of_mr(tmp_path: Path, place: tuple[Any, ...], value: Any, message: str) -> None:
    content = replace_at(DECLARED | {"name": "own"}, place, ABSENT if value is None else value)
    (tmp_path / "own.json").write_text(json.dumps(content))
    with pytest.raises(HecktorError, match=re.escape(message)):
        load_edition(str(tmp_path / "own.json"))
