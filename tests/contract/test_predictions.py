"""`inputs.json` and `predictions.json`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from contract.editions import load_edition
from contract.errors import InputError, PredictionError
from contract.predictions import (
    format_duration,
    make_job_entry,
    make_socket_entry,
    parse_case,
    read_inputs,
    read_predictions,
)

EDITION = load_edition()
CT, EHR = EDITION.inputs["ct"], EDITION.inputs["ehr"]
RFS = EDITION.find_algorithm("rfs").find_answer("rfs").socket


def make_job(pk: str = "job-1", **changes: Any) -> dict[str, Any]:
    inputs = [
        make_socket_entry(CT, 1, image=("uuid-1", "case001.mha")),
        make_socket_entry(EHR, 2, value={"Age": 1}),
    ]
    outputs = [make_socket_entry(RFS, 3, value=0.7)]
    return make_job_entry(pk, inputs, outputs, algorithm_image="image", exec_duration_s=72.4) | changes


def write_json_file(tmp_path: Path, content: Any) -> Path:
    path = tmp_path / "predictions.json"
    path.write_text(json.dumps(content))
    return path


def test_job_entry_has_the_form_of_the_platform() -> None:
    entry = make_job()
    assert entry["exec_duration"] == "P0DT00H01M12S"
    assert entry["invoke_duration"] is None
    assert set(entry) == {"pk", "algorithm_image", "status", "inputs", "outputs", "exec_duration", "invoke_duration"}
    ct = entry["inputs"][0]
    assert ct["socket"] == ct["interface"]
    assert set(ct) == {"socket", "interface", "value", "file", "image", "pk"}
    assert ct["socket"]["relative_path"] == "images/ct"
    assert ct["image"] == {"pk": "uuid-1", "name": "case001.mha"}


@pytest.mark.parametrize(("seconds", "text"), [(0, "P0DT00H00M00S"), (90061, "P1DT01H01M01S"), (-1, "P0DT00H00M00S")])
def test_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize("dropped", ["socket", "interface", None])
def test_socket_and_interface_are_both_accepted(tmp_path: Path, dropped: str | None) -> None:
    entry = make_job()
    for item in (*entry["inputs"], *entry["outputs"]):
        if dropped:
            del item[dropped]
    (result,) = read_predictions(write_json_file(tmp_path, [entry]))
    assert result.find_input_image_name("ct-image") == "case001.mha"
    assert result.find_input_image_name("pet-image") is None
    output = result.find_output("rfs")
    assert output is not None
    assert (output.value, output.relative_path) == (0.7, "rfs.json")
    assert result.find_output("hpv-status") is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, ": found {}, expected a list"),
        ([3], "[0]: found 3, expected an object"),
        ([make_job(pk="")], '[0].pk: found "", expected the job\'s identifier'),
        ([make_job(pk="..")], '[0].pk: found "..", expected the job\'s identifier'),
        ([make_job(status=None)], "[0].status: found null, expected a string"),
        ([make_job(), {"pk": "other", "inputs": [], "outputs": []}], "[1].status: found nothing, expected this key"),
        ([make_job(inputs=[{"socket": {}}])], "[0].inputs[0].socket.slug: found nothing, expected this key"),
        (
            [make_job(inputs=[{"socket": {"slug": "ct-image"}, "image": "n"}])],
            '[0].inputs[0].image: found "n", expected an object',
        ),
        ([make_job(), make_job()], ": job job-1 appears twice, expected each job once"),
    ],
)
def test_invalid_predictions_json(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(PredictionError) as error:
        read_predictions(write_json_file(tmp_path, content))
    assert str(error.value) == f"predictions.json{message}"


def test_only_the_socket_of_an_entry_is_needed(tmp_path: Path) -> None:
    """Entries may have more keys, a name that is no text fails only its case, and NaN is None."""
    entry = {"socket": {"slug": "ct-image", "relative_path": None, "new": 1}, "image": {"name": 5}, "new": [1]}
    entry["value"] = math.nan
    content = [{"pk": "a", "status": "New", "inputs": [entry], "outputs": []}]
    (result,) = read_predictions(write_json_file(tmp_path, content))
    assert (result.inputs[0].relative_path, result.inputs[0].value) == ("", None)
    assert result.find_input_image_name("ct-image") is None


def test_read_inputs_json(tmp_path: Path) -> None:
    path = tmp_path / "inputs.json"
    path.write_text(json.dumps(make_job()["inputs"]))
    assert [item.slug for item in read_inputs(path)] == ["ct-image", "ehr"]
    path.write_text('{"a": 1}')
    with pytest.raises(InputError, match=r"^inputs\.json: found "):
        read_inputs(path, error=InputError)


@pytest.mark.parametrize(
    ("name", "case"),
    [("CHUM-001__CT.nii.gz", "CHUM-001"), ("MDA-0.1.tiff", "MDA-0.1"), ("folder/HGJ-7.MHA", "HGJ-7"), ("no", "no")],
)
def test_case_of_an_image_name(name: str, case: str) -> None:
    assert parse_case(name) == case
