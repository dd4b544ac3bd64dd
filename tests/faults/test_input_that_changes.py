"""An input that changes, disappears or cannot be read while it is being read."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.algorithm.edition import COMBINED, RFS, SEGMENTATION
from tests.faults.conftest import Runs

THRESHOLD: Final = ("--method", "threshold")
CHANGES: Final = {
    "truncated": "os.truncate({0}, 600)",
    "grown": "Path({0}).write_bytes(Path({0}).read_bytes() * 2)",
    "written again": "[time.sleep(0.1), Path({0}).write_bytes(Path({0}).read_bytes())]",
    "replaced": "[Path({0} + '~').write_bytes(Path({0}).read_bytes()), os.replace({0} + '~', {0})]",
    "gone": "os.unlink({0})",
}
# The call that reads the image, and the image.
CT, PET = (1, "0a1b2c3d-ct.mha"), (2, "4e5f6a7b-pet.mha")
NO_PET: Final = "; continuing with only the CT; expect an empty mask"
EMPTY_MASK: Final = "; an empty mask and fallbacks are written"
# A file of the same size that lies elsewhere in space.
MOVE: Final = (
    "[Path({0} + '~').write_bytes(Path({0}).read_bytes().replace(b'Offset = -92', b'Offset = -12')), "
    "os.replace({0} + '~', {0})]"
)
READ_ERROR: Final = "contract.images.metaimage:_inflate_into {} read-error"


def change_image(call: int, change: str) -> str:
    """Return the fault that changes a compressed image when its header is read and the file is open."""
    return f"run contract.images.metaimage:_inflate_into {call} {CHANGES[change].format('arguments[1].name')}"


@pytest.mark.parametrize(("call", "name", "change"), [*((*CT, change) for change in CHANGES), (*PET, "truncated")])
def test_a_compressed_image(run: Runs, call: int, name: str, change: str) -> None:
    ended = run(SEGMENTATION, change_image(call, change), options=THRESHOLD).complete()
    assert (ended.status, ended.files) == (1, [])
    assert ended.last_line.startswith(f"error: {name}: ")


@pytest.mark.parametrize("change", CHANGES)
def test_an_uncompressed_image(run: Runs, case_folder: Any, change: str) -> None:
    case_folder.write(compress=False)
    fault = f"run contract.images.metaimage:_read_uncompressed 1 {CHANGES[change].format('arguments[0].name')}"
    ended = run(SEGMENTATION, fault, options=THRESHOLD).complete()
    assert (ended.status, ended.files) == (1, [])
    assert ended.last_line.startswith("error: 0a1b2c3d-ct.mha: ")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (f"raise {READ_ERROR.format(1)}", "0a1b2c3d-ct.mha: cannot be read (Input"),
        (
            f"after contract.images.volumes:_read_unchecked_header 1 {MOVE.format('str(arguments[0])')}",
            "0a1b2c3d-ct.mha: changed while it was being read",
        ),
        ("run contract.patient:read_text 1 os.truncate(arguments[0], 20)", "ehr.json: not valid JSON"),
        ("run contract.patient:read_text 1 os.unlink(arguments[0])", "ehr.json: not found"),
    ],
    ids=["disk", "replaced between header and pixels", "record truncated", "record gone"],
)
def test_an_input_of_one_answer(run: Runs, fault: str, message: str) -> None:
    is_record = "patient" in fault
    task, method = (RFS, "clinical") if is_record else (SEGMENTATION, "threshold")
    ended = run(task, fault, options=("--method", method)).complete()
    assert (ended.status, ended.files) == (1, [])
    assert message in ended.last_line


@pytest.mark.parametrize(
    ("fault", "messages"),
    [
        (change_image(1, "truncated"), (f"{CT[1]}: ", EMPTY_MASK)),
        (change_image(2, "gone"), (f"{PET[1]}: ", NO_PET)),
        (f"raise {READ_ERROR.format(0)}", (f"{CT[1]}: cannot be read (Input", EMPTY_MASK)),
        ("run contract.patient:read_text 1 os.unlink(arguments[0])", ("; continuing without clinical variables",)),
    ],
    ids=["CT", "PET", "disk", "record"],
)
def test_an_input_of_four_answers(run: Runs, fault: str, messages: tuple[str, ...]) -> None:
    """A changed PET is left out. The grid of a changed CT is known from its header, so fallbacks are written."""
    ended = run(COMBINED, fault, options=("--passes", "1")).complete()
    assert ended.status == 0, ended.stderr
    assert all(message in ended.stderr for message in messages)
