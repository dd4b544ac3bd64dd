"""Files to upload get their names once all have passed."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from algorithm.network.package import load_package
from contract.archives import pack, unpack
from contract.editions import Algorithm, Edition, load_edition
from contract.errors import EngineError, HecktorError, ModelPackageError, OutputError
from contract.io.files import read_json
from contract.packages import read_identity, read_manifest
from rehearsal.runners.containers import ContainerEngine
from rehearsal.runners.runner import ProcessRunner, Runner
from rehearsal.submission import cli, pipeline
from rehearsal.submission.images import ImageBuilder, find_builder_engine
from rehearsal.submission.pipeline import KINDS, SubmissionOptions, _make_cases, make_phantoms, make_submission

TOY = Path(__file__).parents[1] / "toy_algorithm.py"
SEGMENTATION, RFS, HPV = load_edition().algorithms
NEWEST = load_edition("hecktor2026")
RECORD = {"method": "toy", "segmented_by": "network", "passes_done": 4, "passes_planned": 4, "fallbacks": []}
UNSURE = {"found_by": "lung apices", "sure": False}


@dataclass
class StubImages:
    """Archives of a few bytes whose images are the toy program."""

    behave: dict[str, str] = field(default_factory=dict)
    record: dict[str, Any] | None = field(default_factory=lambda: RECORD)
    refuse: str = ""
    options: tuple[str, ...] = ()
    built: list[str] = field(default_factory=list)

    def name(self, task: Algorithm) -> str:
        return f"toy-{task.image}:cpu"

    def build(self, _: Edition, tasks: Sequence[Algorithm], log: Path) -> None:
        log.write_text("built\n")
        self.built += [task.name for task in tasks]

    def save(self, task: Algorithm, folder: Path, log: Path) -> Path:
        archive = folder / f"toy-{task.name}_20260101.tar.gz"
        archive.write_text(task.name)
        return archive

    def load(self, archive: Path) -> Runner:
        task = archive.read_text()
        if task == self.refuse:
            raise EngineError(f"{archive.name}: built for arm64, expected amd64")
        command = (*shlex.split(sys.executable), str(TOY), *self.options)
        return ProcessRunner(
            command, ("--behave", self.behave.get(task, "well"), "--recorded", json.dumps(self.record))
        )


@pytest.fixture(scope="module")
def phantom(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Make one small phantom for all tests."""
    folder = tmp_path_factory.mktemp("phantom")
    return folder, make_phantoms(folder, load_edition(), ("head_and_neck",), coarsening=16)


@pytest.fixture(autouse=True)
def copy_phantom(phantom: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy the phantom instead of making it again; HECKTOR 2026 has the same paths of inputs."""
    cohort, kinds = phantom

    def copy_cohort(folder: Path, _: Edition, __: Sequence[str], coarsening: int) -> dict[str, str]:
        shutil.copytree(cohort, folder)
        return kinds

    monkeypatch.setattr(pipeline, "make_phantoms", copy_cohort)


def ignore_line(_: str) -> None:
    pass


def make_options(package: Path, output: Path, **changes: Any) -> SubmissionOptions:
    return SubmissionOptions(package, output, kinds=("head_and_neck",), **changes)


def list_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_package_without_heads_is_refused_before_the_rehearsal(tiny_package: Path, tmp_path: Path) -> None:
    """Only the task without a head can be submitted; the answers of 2026 have fallbacks."""
    package = Path(shutil.copytree(tiny_package, tmp_path / "package"))
    manifest = read_json(package / "manifest.json")
    manifest["files"] = {name: entry for name, entry in manifest["files"].items() if not name.startswith("heads/")}
    (package / "manifest.json").write_text(json.dumps(manifest))
    shutil.rmtree(package / "heads")
    lines: list[str] = []
    with pytest.raises(ModelPackageError) as error:
        make_submission(make_options(package, tmp_path / "out"), None, lines.append)
    expected = "heads for rfs, hpv, or only --task segmentation"
    assert str(error.value) == f"--package: no head rfs, hpv, expected {expected}"
    assert (lines, (tmp_path / "out").exists()) == ([], False)
    make_submission(make_options(package, tmp_path / "out", tasks=(SEGMENTATION,)), StubImages(), ignore_line)
    assert (tmp_path / "out" / "model.tar.gz").is_file()
    pipeline._check_heads(read_manifest(package), NEWEST.algorithms)


def test_files_of_a_submission(tiny_package: Path, tmp_path: Path) -> None:
    output, images = tmp_path / "submission", StubImages()
    make_submission(make_options(tiny_package, output, torch="cpu"), images, ignore_line)
    assert list_names(output) == [
        "README.md", "hecktor-hpv.tar.gz", "hecktor-rfs.tar.gz", "hecktor-segmentation.tar.gz", "model.tar.gz",
        "rehearsal", "submission.json",
    ]  # fmt: skip
    assert images.built == ["segmentation", "rfs", "hpv"]
    assert (output / "hecktor-rfs.tar.gz").read_text() == "rfs"
    unpack(output / "model.tar.gz", tmp_path / "unpacked")
    assert load_package(tmp_path / "unpacked").manifest == load_package(tiny_package).manifest
    record = read_json(output / "submission.json")
    assert record["images"][1] == {
        "file": "hecktor-rfs.tar.gz", "sha256": hashlib.sha256(b"rfs").hexdigest(), "size": 3, "task": "rfs",
        "image": "toy-hecktor-rfs:cpu", "torch": "cpu",
    }  # fmt: skip
    limits = {rehearsal["task"]: rehearsal["time_limit_s"] for rehearsal in record["rehearsals"]}
    assert limits == {"segmentation": 600, "rfs": 900, "hpv": 600}
    assert record["model"]["manifest_sha256"] == read_identity(tiny_package).manifest_sha256
    (case,) = record["rehearsals"][1]["cases"]
    assert case["kind"] == "head_and_neck"
    assert 0 < case["seconds"] == record["rehearsals"][1]["longest_s"]
    text = (output / "README.md").read_text()
    assert "| hecktor-rfs.tar.gz | container image of the algorithm for task 2, Recurrence-free survival |" in text
    assert f"| {read_identity(tiny_package).name}: 4 of 4 passes |" in text
    assert "on a CPU, not on a GPU" in text
    assert "do not use the platform's GPU" in text
    assert "- `rfs.json` is a risk: a higher value means earlier recurrence." in text


def test_one_image_for_the_four_answers_of_2026(combined_package: Path, tmp_path: Path) -> None:
    """Image and archive are named as declared; the README gives the direction of the recurrence-free survival."""
    output, images = tmp_path / "submission", StubImages(options=("--four-answers",))
    submission = make_submission(make_options(combined_package, output, edition=NEWEST), images, ignore_line)
    assert list_names(output) == ["README.md", "hecktor-2026.tar.gz", "model.tar.gz", "rehearsal", "submission.json"]
    assert images.built == ["combined"]
    assert submission.rehearsals[0].time_limit_s == 25 * 60
    predictions = output / "rehearsal" / "combined" / "predictions"
    assert list_names(predictions) == ["n_stage", "rfs", "segmentation", "t_stage"]
    text = (output / "README.md").read_text()
    assert "| head-neck-tumor-segmentation, t-stage, n-stage, rfs |" in text
    assert "- `rfs.json` is a time in days: a higher value means later recurrence." in text


def test_what_the_run_record_says_is_shown(tiny_package: Path, tmp_path: Path) -> None:
    """Without a run record, which other algorithms do not write, the submission passes with a warning."""
    record = RECORD | {"region": UNSURE, "notices": [{"what": "CT", "found": "padding"}]}
    submission = make_submission(
        make_options(tiny_package, tmp_path / "submission", tasks=(RFS,)), StubImages(record=record), ignore_line
    )
    (case,) = submission.rehearsals[0].cases
    expected = "4 of 4 passes, region unsure, warnings: 1"
    assert case.answered == f"{read_identity(tiny_package).name}: {expected}"
    lines: list[str] = []
    options = make_options(tiny_package, tmp_path / "unrecorded", tasks=(HPV,))
    make_submission(options, StubImages(record=None), lines.append)
    assert "no run record |" in (tmp_path / "unrecorded" / "README.md").read_text()
    unknown = r"hpv: warning: model package: no run record of \S+, so the package that answered is not known"
    assert any(re.fullmatch(unknown, line) for line in lines)


@pytest.mark.parametrize(
    ("images", "says"),
    [
        (
            StubImages({"rfs": "exit-3"}),
            r"^rfs: phantom \w+-\d+ \(head_and_neck\): exit status 3.*the scanner was off; no file",
        ),
        (StubImages({"segmentation": "wrong-geometry"}), r"^segmentation: .*its grid is not the CT's \(origin"),
        (StubImages(record=RECORD | {"passes_done": 0}), r"the PET threshold answered, expected an answer of the net"),
        (
            StubImages(record=RECORD | {"segmented_by": None, "region": UNSURE}),
            r"neither a body nor uptake was found, expected an",
        ),
        (
            StubImages(record=RECORD | {"package": {"name": "baked", "manifest_sha256": "0" * 64}}),
            r"^segmentation: model package: baked, manifest sha256 000000000000 in the run record of \S+, expected tiny,",
        ),
        (StubImages(record=RECORD | {"fallbacks": ["rfs"]}), r"fallbacks answered for rfs, expected answers of the mo"),
        (StubImages(refuse="hpv"), r"^hecktor-hpv\.tar\.gz: built for arm64, expected amd64; no file was replaced"),
    ],
    ids=["exit status", "geometry", "no pass", "empty scan", "package", "fallback", "refused"],
)
def test_a_failed_check_leaves_no_files(tiny_package: Path, tmp_path: Path, images: StubImages, says: str) -> None:
    """Files that had passed are removed too; the logs stay."""
    with pytest.raises(HecktorError, match=says):
        make_submission(make_options(tiny_package, tmp_path / "submission"), images, ignore_line)
    assert list_names(tmp_path / "submission") == ["failed"]
    assert (tmp_path / "submission" / "failed" / "images.log").read_text() == "built\n"


def test_an_earlier_submission_is_replaced_only_by_one_that_passed(tiny_package: Path, tmp_path: Path) -> None:
    """Submissions of fewer tasks leave none of the earlier images behind."""
    output = tmp_path / "submission"
    make_submission(make_options(tiny_package, output, tasks=(RFS, HPV)), StubImages(), ignore_line)
    before = {path.name: path.stat().st_mtime_ns for path in output.iterdir() if path.is_file()}
    with pytest.raises(HecktorError, match="exit status 3"):
        make_submission(make_options(tiny_package, output, tasks=(HPV,)), StubImages({"hpv": "exit-3"}), ignore_line)
    assert before == {path.name: path.stat().st_mtime_ns for path in output.iterdir() if path.is_file()}
    make_submission(make_options(tiny_package, output, tasks=(HPV,)), StubImages(), ignore_line)
    assert list_names(output) == ["README.md", "hecktor-hpv.tar.gz", "model.tar.gz", "rehearsal", "submission.json"]
    assert list_names(output / "rehearsal") == ["hpv", "images.log"]


def test_phantoms_are_different_patients_and_one_has_a_dose() -> None:
    """Draw the usual, the longest and the shortest field of view without rendering."""
    cases = list(_make_cases(KINDS, load_edition()))
    assert [case.protocol.field_of_view for case in cases] == list(KINDS)
    assert len({case.index for case in cases}) == 3
    assert cases[0].protocol.dose is not None


def test_a_folder_with_other_content_is_refused(tiny_package: Path, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("a thesis")
    with pytest.raises(OutputError, match="exists and is not the folder of a submission"):
        make_submission(make_options(tiny_package, tmp_path), StubImages(), ignore_line)
    assert list_names(tmp_path) == ["README.md"]


def test_a_packed_package_gives_the_same_model(tiny_package: Path, tmp_path: Path) -> None:
    pack(tiny_package, tmp_path / "packed.tar.gz")
    for package, name in ((tiny_package, "first"), (tmp_path / "packed.tar.gz", "second")):
        make_submission(make_options(package, tmp_path / name, tasks=(SEGMENTATION,)), StubImages(), ignore_line)
    first, second = (tmp_path / name / "model.tar.gz" for name in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()


def test_a_package_of_another_edition_is_refused_before_images_are_built(
    tiny_package: Path, combined_package: Path, tmp_path: Path
) -> None:
    images = StubImages()
    for package, edition, edition_of_package, expected in (
        (tiny_package, NEWEST, "hecktor2025", "hecktor2026"),
        (combined_package, load_edition(), "hecktor2026", "hecktor2025"),
    ):
        with pytest.raises(ModelPackageError) as error:
            make_submission(make_options(package, tmp_path / "submission", edition=edition), images, ignore_line)
        assert str(error.value) == f"manifest.json: found edition {edition_of_package!r}, expected {expected!r}"
    assert (images.built, list_names(tmp_path)) == ([], [])


def test_without_an_engine_only_the_model_is_made(
    tiny_package: Path, combined_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[SubmissionOptions, Any]] = []
    monkeypatch.setattr(pipeline, "make_submission", lambda options, images, report: calls.append((options, images)))
    options = ["--package", str(tiny_package), "--output", str(tmp_path / "submission")]
    with pytest.raises(EngineError, match=r"\(tried no-such-client\).*model\.tar\.gz was made and rehearsed"):
        cli.main([*options, "--engine", "no-such-client", "--task", "3", "--task", "rfs"])
    assert cli.main([*options, "--model-only"]) == 0
    requested = [(request.tasks, images) for request, images in calls]
    assert requested == [((RFS, HPV), None), ((SEGMENTATION, RFS, HPV), None)]
    with pytest.raises(SystemExit):
        cli.main([*options, "--model-only", "--images", "cuda"])
    # The package knows its edition.
    assert cli.main(["--package", str(combined_package), *options[2:], "--model-only"]) == 0
    assert calls[-1][0].edition == NEWEST


def test_images_are_built_from_the_source_tree(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"^scripts/build: not found"):
        find_builder_engine(None, tmp_path)


def test_the_error_of_a_failed_script_is_its_last_line(tmp_path: Path) -> None:
    script = tmp_path / "scripts" / "build"
    script.parent.mkdir()
    script.write_text('#!/bin/sh\necho "$HECKTOR_ENGINE $*"\necho "error: no wheels"\nexit 4\n')
    script.chmod(0o755)

    def build(builder: ImageBuilder, edition: Edition, *tasks: Algorithm) -> str:
        """Return the arguments of the script."""
        with pytest.raises(EngineError, match=r"^scripts/build ended with status 4: error: no wheels$"):
            builder.build(edition, tasks, tmp_path / "log")
        return (tmp_path / "log").read_text().splitlines()[-2].removeprefix("toy-client ")

    images = ImageBuilder(ContainerEngine("toy-client", is_podman=False), tmp_path, "cuda", False, 1, "third try")
    common = "--require-model --cuda --revision third try"
    arguments = build(images, load_edition(), SEGMENTATION, RFS)
    assert arguments == f"hecktor-segmentation hecktor-rfs {common} --edition hecktor2025"
    assert images.name(HPV) == "hecktor-hpv:cuda-require-model"

    server = replace(images, api_method="invoke")
    assert "hecktor-hpv --require-model --cuda --api-method invoke --revision" in build(server, load_edition(), HPV)
    assert server.name(HPV) == "hecktor-hpv:cuda-invoke-require-model"
    assert replace(server, torch=None).name(HPV) == "hecktor-evaluation-hpv:invoke"

    with_code = replace(images, code=(tmp_path / "my_model", tmp_path / "forest"))
    code = f"third try --code {tmp_path}/my_model --code {tmp_path}/forest"
    assert code in build(with_code, load_edition(), HPV)
    assert with_code.name(HPV) == "hecktor-hpv:cuda-require-model-my_model-forest"

    (four_answers,) = NEWEST.algorithms
    assert build(images, NEWEST, four_answers) == f"hecktor-2026 {common} --edition hecktor2026"
    assert images.name(four_answers) == "hecktor-2026:cuda-require-model"

    custom = load_edition(str(Path(__file__).parents[2] / "editions" / "four_answers.json"))
    assert f"everything {common} --edition {tmp_path}/edition.json" in build(images, custom, *custom.algorithms)
    assert read_json(tmp_path / "edition.json") == custom.content

    evaluation = replace(images, torch=None, revision="")
    assert build(evaluation, load_edition(), HPV) == "hecktor-evaluation-hpv --edition hecktor2025"
    assert evaluation.name(HPV) == "hecktor-evaluation-hpv:latest"
