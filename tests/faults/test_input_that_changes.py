"""An input that changes while it is being read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.algorithm.edition import COMBINED, RFS, SEGMENTATION

Runs = Callable[..., Any]
THRESHOLD: Final = ("--method", "threshold")
CHANGES: Final = {
    "truncated": "os.truncate({0}, 600)",
    "grown": "Path({0}).write_bytes(Path({0}).read_bytes() * 2)",
    "written again": "[time.sleep(0.1), Path({0}).write_bytes(Path({0}).read_bytes())]",
    "replaced": "[Path({0} + '~').write_bytes(Path({0}).read_bytes()), os.replace({0} + '~', {0})]",
    "gone": "os.unlink({0})",
}


CT, PET = (1, "0a1b2c3d-ct.mha"), (2, "4e5f6a7b-pet.mha")


@pytest.mark.parametrize(("call", "name", "change"), [*((*CT, change) for change in CHANGES), (*PET, "truncated")])
def test_a_compressed_image(run: Runs, call: int, name: str, change: str) -> None:
    """When its header is read and the file is open."""
    fault = f"run contract.images.metaimage:_inflate_into {call} {CHANGES[change].format('arguments[1].name')}"
    ended = run(SEGMENTATION, fault, options=THRESHOLD).whole()
    assert (ended.status, ended.files) == (1, [])
    assert ended.last.startswith(f"error: {name}: ")


@pytest.mark.parametrize("change", CHANGES)
def test_a_plain_image(run: Runs, case_folder: Any, change: str) -> None:
    """As its pixels are read, after its header."""
    case_folder.write(compress=False)
    fault = f"run contract.images.metaimage:_read_uncompressed 1 {CHANGES[change].format('arguments[0].name')}"
    ended = run(SEGMENTATION, fault, options=THRESHOLD).whole()
    assert (ended.status, ended.files) == (1, [])
    assert ended.last.startswith("error: 0a1b2c3d-ct.mha: ")


@pytest.mark.parametrize(
    ("change", "said"),
    [("os.truncate(arguments[0], 20)", "ehr.json: not valid JSON"), ("os.unlink(arguments[0])", "ehr.json: not found")],
    ids=["truncated", "gone"],
)
def test_the_clinical_record(run: Runs, change: str, said: str) -> None:
    ended = run(RFS, f"run contract.patient:read_text 1 {change}", options=("--method", "clinical")).whole()
    assert (ended.status, ended.files) == (1, [])
    assert said in ended.last


def test_a_disk_that_cannot_be_read(run: Runs) -> None:
    ended = run(SEGMENTATION, "raise contract.images.metaimage:_inflate_into 1 read-error", options=THRESHOLD).whole()
    assert (ended.status, ended.files) == (1, [])
    assert ended.last.startswith("error: 0a1b2c3d-ct.mha: cannot be read (Input")


def test_an_image_that_is_replaced_between_its_header_and_its_pixels(run: Runs) -> None:
    """By one of the same size elsewhere in space."""
    moved = "Path({0} + '~').write_bytes(Path({0}).read_bytes().replace(b'Offset = -92', b'Offset = -12'))"
    change = f"[{moved}, os.replace({{0}} + '~', {{0}})]".format("str(arguments[0])")
    ended = run(
        SEGMENTATION, f"after contract.images.volumes:_read_unchecked_header 1 {change}", options=THRESHOLD
    ).whole()
    assert (ended.status, ended.files) == (1, [])
    assert ended.last.startswith("error: 0a1b2c3d-ct.mha: changed while it was being read")


@pytest.mark.parametrize(("call", "name", "change"), [(*CT, "truncated"), (*PET, "gone")])
def test_an_image_of_four_answers(run: Runs, call: int, name: str, change: str) -> None:
    """A changed PET is left out. Of a changed CT the grid is known from its header, for fallbacks."""
    fault = f"run contract.images.metaimage:_inflate_into {call} {CHANGES[change].format('arguments[1].name')}"
    ended = run(COMBINED, fault, options=("--passes", "1")).whole()
    assert f"{name}: " in ended.said
    assert ended.status == 0, ended.said
    written = (
        "an empty mask and fallbacks are written" if call == 1 else "going on with the CT alone; expect an empty mask"
    )
    assert f"; {written}" in ended.said


def test_the_clinical_record_of_four_answers(run: Runs) -> None:
    ended = run(COMBINED, "run contract.patient:read_text 1 os.unlink(arguments[0])", options=("--passes", "1")).whole()
    assert ended.status == 0, ended.said
    assert "; going on without clinical variables" in ended.said


def test_a_disk_that_cannot_be_read_for_four_answers(run: Runs) -> None:
    ended = run(COMBINED, "raise contract.images.metaimage:_inflate_into 0 read-error").whole()
    assert ended.status == 0, ended.said
    assert "0a1b2c3d-ct.mha: cannot be read (Input" in ended.said
