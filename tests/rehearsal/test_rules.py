"""Rules of the platform that need no run: images at upload, leaderboard paths, verdicts, cases, options."""

import argparse
import io
import json
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.editions import load_edition
from contract.editions.declaration import CT, RT_DOSE
from contract.errors import EngineError, InputError
from contract.images.volumes import Volume, read_volume, write_volume
from rehearsal.cases import find_cases, stage_job
from rehearsal.cli import memory_bytes
from rehearsal.images.checks import ImageFacts, facts_of_archive, upload_problems
from rehearsal.leaderboard import ranked_values, value_at
from rehearsal.runners.failures import last_line, log_warnings, run_failure
from rehearsal.runners.monitor import RunOutcome
from rehearsal.runners.runner import GIB, Limits

EDITION = load_edition()
SEGMENTATION, RFS, _ = EDITION.algorithms


def facts(**changes) -> ImageFacts:
    sound = {"name": "i", "user": "hecktor", "architecture": "amd64", "api_method": "exec", "size_bytes": 1}
    return ImageFacts(**{**sound, "variables": (), **changes})


@pytest.mark.parametrize("user", ["", "root", "0", "0:0", "0:1000", "root:root"])
def test_root_is_refused(user):
    (problem,) = upload_problems(facts(user=user))
    assert "expected a user that is not root; the platform would refuse the image" in problem


@pytest.mark.parametrize("user", ["hecktor", "1000", "1000:0", "rooty", "00x"])
def test_other_users_are_taken(user):
    assert upload_problems(facts(user=user)) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"architecture": "arm64"}, "built for arm64, expected amd64"),
        ({"api_method": "batch"}, "'batch', expected exec or invoke"),
        ({"size_bytes": 10_000_000_001}, "expected at most 10 GB"),
        ({"manifests": 2}, "2 images in the archive"),
    ],
)
def test_what_else_is_refused(changes, said):
    (problem,) = upload_problems(facts(**changes))
    assert said in problem


def saved_image(path: Path, config: dict, images: int = 1) -> Path:
    manifest = [{"Config": "blobs/sha256/abc", "RepoTags": ["i:latest"], "Layers": []}] * images
    with tarfile.open(path, "w:gz") as archive:
        for name, document in (("blobs/sha256/abc", config), ("manifest.json", manifest)):
            content = json.dumps(document).encode()
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def test_a_saved_image_is_read_without_an_engine(tmp_path: Path):
    config = {
        "architecture": "amd64",
        "config": {
            "User": "1000",
            "Labels": {"org.grand-challenge.api-method": "invoke"},
            "Env": ["PATH=/bin", "GRAND_CHALLENGE_X=1"],
        },
    }
    found = facts_of_archive(saved_image(tmp_path / "i.tar.gz", config))
    assert (found.user, found.architecture, found.api_method, found.manifests) == ("1000", "amd64", "invoke", 1)
    assert found.stripped_variables == ("GRAND_CHALLENGE_X",)
    assert upload_problems(found) == []
    two = facts_of_archive(saved_image(tmp_path / "two.tar.gz", {"architecture": "arm64", "config": {}}, images=2))
    assert len(upload_problems(two)) == 3


@pytest.mark.parametrize(("name", "content"), [("i.zip", b""), ("i.tar", b"garbage"), ("j.tar.gz", b"garbage")])
def test_what_is_no_saved_image(tmp_path: Path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(EngineError, match=name):
        facts_of_archive(path)


def test_an_archive_without_a_manifest(tmp_path: Path):
    with tarfile.open(tmp_path / "e.tar", "w"):
        pass
    with pytest.raises(EngineError, match=r"no manifest\.json"):
        facts_of_archive(tmp_path / "e.tar")


def test_dotted_paths():
    metrics = {"a": {"b": {"value": 1.5}}, "l": [1, 2]}
    assert value_at(metrics, "a.b.value") == 1.5
    assert value_at(metrics, "a.c.value") is None
    assert value_at(metrics, "l.0") is None


@pytest.mark.parametrize("bad", [None, "0.7", True, [0.5], float("nan"), float("inf")])
def test_one_bad_ranked_metric_leaves_a_result_unranked(bad):
    """Metrics that the evaluation does not rank may be undefined."""
    aggregates = {name: {"value": 0.5} for name in ("balanced_accuracy", "specificity")} | {"sensitivity": None}
    metrics = {"aggregates": aggregates, "provenance": {"ranked_metrics": ["balanced_accuracy", "specificity"]}}
    paths = ("aggregates.balanced_accuracy.value", "aggregates.specificity.value")
    assert ranked_values(metrics) == (dict.fromkeys(paths, 0.5), [])
    aggregates["specificity"]["value"] = bad
    values, problems = ranked_values(metrics)
    assert values == {paths[0]: 0.5}
    assert len(problems) == 1


def test_without_a_list_of_ranked_metrics_all_numbers_count():
    aggregates = {"a": {"value": 1}, "b": {"value": 0.5}, "undefined": {"value": None}}
    assert ranked_values({"aggregates": aggregates}) == (
        {"aggregates.a.value": 1.0, "aggregates.b.value": 0.5}, []
    )  # fmt: skip
    for empty, found in (({}, "nothing"), ({"aggregates": {}}, "a dict"), ([], "nothing")):
        values, (problem,) = ranked_values(empty)
        assert values == {}
        assert problem.startswith(f"metrics.json: found {found} at aggregates, expected a number")


def test_memory_limits_follow_the_platform():
    """16 GiB: half of it is shared memory, and a process's data segment is 1 GiB short of it."""
    limits = Limits(16 * GIB, 600)
    assert limits.shared_memory_bytes == 8 * GIB
    assert limits.data_segment_bytes == 15 * GIB
    assert Limits(GIB, 600).data_segment_bytes is None


@pytest.mark.parametrize(
    ("text", "size"), [("16g", 16 * GIB), ("512M", 2**29), ("1.5GiB", 3 * 2**29), ("33554432", 2**25)]
)
def test_memory_sizes(text, size):
    assert memory_bytes(text) == size


@pytest.mark.parametrize("text", ["", "g", "16x", "-1g", "1k", "nan"])
def test_what_is_no_memory_size(text):
    with pytest.raises(argparse.ArgumentTypeError):
        memory_bytes(text)


def test_the_last_line_skips_blank_ones_and_is_cut(tmp_path: Path):
    log = tmp_path / "c.stderr"
    log.write_bytes(b"first\n" + b"x" * 2000 + b"\n \n\n")
    assert last_line(log) == "x" * 1024
    log.write_bytes(b"\n")
    assert last_line(log) == ""
    assert last_line(tmp_path / "absent") == ""


@given(st.binary(max_size=2000))
def test_any_bytes_are_a_log(tmp_path_factory, content):
    log = tmp_path_factory.mktemp("log") / "c.stderr"
    log.write_bytes(content)
    assert len(last_line(log)) <= 1024
    try:
        content.decode()
    except UnicodeDecodeError:
        assert any("not UTF-8" in line for line in log_warnings(log))
    else:
        assert not any("not UTF-8" in line for line in log_warnings(log))


@pytest.mark.parametrize("code", [137, -9])
def test_a_kill_is_told_as_memory(tmp_path: Path, code):
    said = run_failure(RunOutcome(code, 1.0, False, None), Limits(16 * GIB, 600), tmp_path / "absent")
    assert said is not None
    assert "memory beyond 16 GiB; the platform would fail the job" in said


def test_cases_must_be_complete(cohort: Path, tmp_path: Path):
    assert [case.case_id for case in find_cases(cohort, SEGMENTATION)] == ["A-1", "B-2"]
    assert [case.case_id for case in find_cases(cohort, SEGMENTATION, ["B-2"])] == ["B-2"]
    with pytest.raises(InputError, match="no case C-3"):
        find_cases(cohort, SEGMENTATION, ["C-3"])
    with pytest.raises(InputError, match="no such folder"):
        find_cases(cohort / "absent", SEGMENTATION)
    with pytest.raises(InputError, match="no folder <ID>/input"):
        find_cases(cohort / "A-1", SEGMENTATION)
    (cohort / "A-1" / "input" / "ehr.json").unlink()
    with pytest.raises(InputError, match=r"A-1: no ehr\.json, expected it for task rfs"):
        find_cases(cohort, RFS)


def test_other_formats_are_saved_again_as_mha(cohort: Path, tmp_path: Path):
    folder = EDITION.inputs[CT].path_under(cohort / "A-1" / "input")
    volume = read_volume(folder / "scan.mha")
    (folder / "scan.mha").unlink()
    array = volume.array.copy()
    array[1, 2, 3] = 77
    write_volume(folder / "scan.nii.gz", Volume(array, volume.geometry))
    case = find_cases(cohort, SEGMENTATION)[0]
    job = stage_job(case, tmp_path / "job")
    (staged,) = (tmp_path / "job" / "images" / "ct").iterdir()
    assert staged.name == f"{job.entries[0]['image']['pk']}.mha"
    again = read_volume(staged)
    assert again.geometry.differences(volume.geometry) == []
    assert again.array[1, 2, 3] == 77


def test_task_two_alone_sees_the_dose(cohort: Path):
    folder = EDITION.inputs[RT_DOSE].path_under(cohort / "A-1" / "input")
    ct = EDITION.inputs[CT].path_under(cohort / "A-1" / "input") / "scan.mha"
    folder.mkdir()
    (folder / "dose.mha").write_bytes(ct.read_bytes())
    assert EDITION.inputs[RT_DOSE] in dict(find_cases(cohort, RFS)[0].files)
    assert EDITION.inputs[RT_DOSE] not in dict(find_cases(cohort, SEGMENTATION)[0].files)
