"""`scripts/build` and `scripts/save` with an engine that only records its calls."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOUR = ROOT / "tests" / "editions" / "four_answers.json"
# The engine has the images of this project and `larynx`, each of one byte.
ENGINE = """\
#!/bin/bash
echo "$*" >> {folder}/calls
case "$*" in
    --version) echo podman ;;
    *"inspect no-such:latest" | *"inspect hecktor-larynx:latest" | *"inspect hecktor-no-such:latest") exit 1 ;;
    *Created*) echo 2026-01-01T00:00:00 ;;
    image*) echo 1 ;;
    save*) cat {folder}/image.tar ;;
    *"--entrypoint test larynx"*) exit 1 ;;
    *"--entrypoint test hecktor-broken"*) echo no daemon >&2; exit 125 ;;
    *"--entrypoint python3 hecktor-unlisted"*) echo half a bill; exit 1 ;;
    run*) cat >/dev/null; echo a bill ;;
esac
"""


def write_tar(path: Path, files: dict[str, bytes], time: int = 0, umask: int = 0o022) -> None:
    """Write an archive of regular files, and of folders, whose names end in a slash; only opt/app depends on the umask."""
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name.rstrip("/"))
            member.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            member.size, member.mtime = len(content), time
            member.mode = (0o777 if member.isdir() else 0o666) & ~(umask if name.startswith("opt/app") else 0o022)
            archive.addfile(member, io.BytesIO(content))


def write_engine_archive(path: Path, layer: str, time: int, umask: int) -> None:
    """Write an archive as an engine does.

    Its layer is in a folder of any name, and has the time of the build and the modes of the checkout.
    """
    files = {"etc/": b"", "etc/.wh.removed": b"", "opt/": b"", "opt/app/": b"", "opt/app/app.py": b"a program"}
    write_tar(path, files, time, umask)
    created = f"2026-01-01T00:00:{time:02}Z"
    config = {"created": created, "history": [{"created": created}], "rootfs": {"diff_ids": ["sha256:11", "sha256:11"]}}
    manifest = [{"Config": "config.json", "RepoTags": ["tiny:latest"], "Layers": [f"{layer}/layer.tar"] * 2}]
    files = {
        "config.json": json.dumps(config).encode(),
        "manifest.json": json.dumps(manifest).encode(),
        f"{layer}/layer.tar": path.read_bytes(),
    }
    write_tar(path, files)


Script = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Run a script in a copy of the scripts and editions, from another folder with a space in its name."""
    engine, caller = tmp_path / "engine", tmp_path / "the caller"
    engine.write_text(ENGINE.format(folder=tmp_path))
    engine.chmod(0o755)
    write_engine_archive(tmp_path / "image.tar", "any", time=1, umask=0o022)
    caller.mkdir()
    shutil.copytree(ROOT / "scripts", tmp_path / "tree" / "scripts")
    shutil.copytree(ROOT / "docker", tmp_path / "tree" / "docker")
    shutil.copytree(ROOT / "contract" / "editions", tmp_path / "tree" / "contract" / "editions")
    shutil.copy(ROOT / "pyproject.toml", tmp_path / "tree")

    def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [tmp_path / "tree" / "scripts" / name, *arguments]
        environment = os.environ | {"HECKTOR_ENGINE": str(engine)}
        return subprocess.run(command, cwd=caller, env=environment, capture_output=True, text=True, check=False)

    return run


def read_built_tags(folder: Path) -> list[str]:
    """Return the tags of the images that were built."""
    calls = [line.split() for line in (folder / "calls").read_text().splitlines()]
    return [words[words.index("--tag") + 1] for words in calls if words[0] == "build"]


def write_own_edition(folder: Path, image: str) -> None:
    """Write `mine.json` in the caller's folder, with this name of its image."""
    edition = json.loads(FOUR.read_text())
    edition["algorithms"][0]["image"] = image
    (folder / "the caller" / "mine.json").write_text(json.dumps(edition))


@pytest.mark.parametrize("name", ["hecktor2026", "combined", "r.s", "900", "larynx"])
def test_only_names_of_images_are_known(script: Script, tmp_path: Path, name: str) -> None:
    """Editions and tasks are listed with the images; their names would build nothing."""
    done = script("build", name)
    assert done.returncode == 2
    assert done.stderr.splitlines()[2].startswith("  scripts/build [NAME|algorithm|evaluation|all]...")
    assert not (tmp_path / "calls").exists()


@pytest.mark.parametrize(
    ("words", "tags"),
    [
        (["larynx"], ["larynx:latest"]),
        (["evaluation-larynx"], ["hecktor-evaluation-larynx:latest"]),
        ([], ["larynx:latest", "hecktor-evaluation-larynx:latest"]),
    ],
)
def test_images_of_an_own_edition(script: Script, tmp_path: Path, words: list[str], tags: list[str]) -> None:
    write_own_edition(tmp_path, "larynx")
    assert script("build", *words, "--edition", "mine.json").returncode == 0
    assert read_built_tags(tmp_path) == tags
    inside = tmp_path / "tree" / "build" / "edition" / "edition.json"
    assert inside.read_bytes() == (tmp_path / "the caller" / "mine.json").read_bytes()


def test_images_of_one_edition_of_the_package(script: Script, tmp_path: Path) -> None:
    """HECKTOR 2020 scores only the masks of 2025's algorithms; the images hold all shipped editions anyway."""
    assert script("build", "evaluation", "--edition", "hecktor2020").returncode == 0
    assert read_built_tags(tmp_path) == ["hecktor-evaluation-segmentation:latest"]
    assert "--build-arg EDITION=hecktor2020 --build-arg TASK=segmentation" in (tmp_path / "calls").read_text()
    assert not list((tmp_path / "tree" / "build" / "edition").iterdir())


def test_code_gets_into_an_image_whose_name_has_all_in_it(script: Script, tmp_path: Path) -> None:
    write_own_edition(tmp_path, "hecktor-small")
    (tmp_path / "the caller" / "my_model").mkdir()
    (tmp_path / "the caller" / "my_model" / "__init__.py").touch()
    assert script("build", "small", "--code", "my_model", "--edition", "mine.json").returncode == 0
    assert read_built_tags(tmp_path) == ["hecktor-small:latest", "hecktor-small:my_model"]
    for name in ("all", "evaluation", "evaluation-rfs", "hecktor-evaluation-rfs"):
        assert "expected algorithm images" in script("build", "rfs", name, "--code", "my_model").stderr


def test_a_full_name_names_one_image(script: Script, tmp_path: Path) -> None:
    """Submissions use full names, since `all` builds everything."""
    write_own_edition(tmp_path, "hecktor-all")
    assert script("build", "hecktor-all", "--edition", "mine.json").returncode == 0
    assert read_built_tags(tmp_path) == ["hecktor-all:latest"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "error: mine.json: No such file or directory, expected the JSON file of an edition"),
        ("{", "error: mine.json: JSONDecodeError('Expecting property name enclosed in double quotes: line 1 column 2"),
        ("[]", "expected the JSON file of an edition"),
    ],
)
def test_a_file_that_is_no_edition_is_named(script: Script, tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "the caller" / "mine.json").write_text(text)
    done = script("build", "--edition", "mine.json")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert message in done.stderr
    assert not (tmp_path / "calls").exists()


def test_save_finds_an_image_without_the_prefix(script: Script, tmp_path: Path) -> None:
    """Docker has `larynx` and `hecktor-rfs`; this project's name comes first."""
    assert script("save", "larynx", "rfs", "--output", "here").returncode == 0
    names = sorted(path.name for path in (tmp_path / "the caller" / "here").iterdir())
    bill = "hecktor-rfs_20260101000000.cdx.json"  # larynx has no list of packages
    assert names == [bill, "hecktor-rfs_20260101000000.tar.gz", "larynx_20260101000000.tar.gz"]
    assert (tmp_path / "the caller" / "here" / bill).read_text() == "a bill\n"
    done = script("save", "no-such")
    assert (done.returncode, done.stderr) == (1, "error: no image hecktor-no-such:latest: run scripts/build\n")


@pytest.mark.parametrize(
    ("name", "message"),
    [("broken", "error: hecktor-broken:latest: the engine cannot run it (status 125): no daemon\n"), ("unlisted", "")],
)
def test_a_save_that_fails_leaves_nothing(script: Script, tmp_path: Path, name: str, message: str) -> None:
    done = script("save", name, "--output", "here")
    assert done.returncode != 0
    assert done.stderr == message
    assert not list((tmp_path / "the caller" / "here").iterdir())


def test_equal_images_have_equal_archives(script: Script, tmp_path: Path) -> None:
    """Time and umask of the build, and the engine's names of layers, do not matter."""
    archives = []
    for layer, time, umask in (("a", 1, 0o022), ("b", 2, 0o077)):
        write_engine_archive(tmp_path / "image.tar", layer, time, umask)
        assert script("save", "rfs", "--output", layer).returncode == 0
        (path,) = (tmp_path / "the caller" / layer).glob("*.tar.gz")
        archives.append(path.read_bytes())
    assert archives[0] == archives[1]
    with tarfile.open(fileobj=io.BytesIO(archives[0])) as archive:
        files = {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]
    (manifest,) = json.loads(files["manifest.json"])
    assert manifest["Config"] == f"{hashlib.sha256(files[manifest['Config']]).hexdigest()}.json"
    name = manifest["Layers"][0]
    assert (manifest["RepoTags"], manifest["Layers"]) == (["tiny:latest"], [name, name])
    digest = hashlib.sha256(files[name]).hexdigest()
    assert name == f"{digest}/layer.tar"
    assert json.loads(files[manifest["Config"]])["rootfs"]["diff_ids"] == [f"sha256:{digest}"] * 2
    with tarfile.open(fileobj=io.BytesIO(files[name])) as layer_archive:
        assert {member.mtime for member in layer_archive} == {315532800}
        assert layer_archive.extractfile("opt/app/app.py").read() == b"a program"  # type: ignore[union-attr]
        assert [layer_archive.getmember(name).mode for name in ("opt/app", "opt/app/app.py")] == [0o755, 0o644]


@pytest.mark.parametrize("sign", [" ", "="])
def test_the_demo_builds_and_runs_an_own_edition(script: Script, tmp_path: Path, sign: str) -> None:
    """Paths are relative to the caller's folder. Plain processes need no image."""
    tree, caller = tmp_path / "tree", tmp_path / "the caller"
    (tree / ".venv" / "bin").mkdir(parents=True)
    for path, text in ((tree / "scripts" / "setup", ""), (tree / ".venv" / "bin" / "hecktor", 'printf "<%s>" "$@"')):
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    write_own_edition(tmp_path, "larynx")
    done = script("demo", *f"--edition{sign}mine.json --patients 3 --output{sign}here".split(" "))
    ran = f"<demo><--edition><{caller}/mine.json><--patients><3><--output><{caller}/here><--containers>"
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, ran)
    assert read_built_tags(tmp_path) == ["larynx:invoke", "hecktor-evaluation-larynx:invoke"]
    done = script("demo", "--no-containers", "--edition", "hecktor2026")
    assert done.stdout.splitlines()[-1] == "<demo><--edition><hecktor2026>"
    assert len(read_built_tags(tmp_path)) == 2


def test_an_image_is_one_line_and_a_failed_one_the_end_of_its_log(script: Script, tmp_path: Path) -> None:
    """Logs of the engine, some 80 lines, are in build/; the last line of stderr is the engine's."""
    engine = tmp_path / "engine"
    cases = "build*evaluation-rfs*) echo step; echo fault >&2; exit 3 ;;\n    build*) echo step ;;\n    --version)"
    engine.write_text(engine.read_text().replace("--version)", cases))
    done = script("build", "rfs", "evaluation-rfs")
    log = "build/hecktor-evaluation-rfs-latest.log"
    assert done.stdout.splitlines()[0].startswith("hecktor-rfs:latest ")
    assert (
        done.stdout.splitlines()[1].split() == f"hecktor-evaluation-rfs:latest the build failed, log in {log}:".split()
    )
    assert (done.returncode, done.stderr.splitlines()[-2:]) == (3, ["step", "fault"])
    assert (tmp_path / "tree" / log).read_text() == "step\nfault\n"


def test_a_conflict_of_codes_requirements_is_the_last_line(script: Script, tmp_path: Path) -> None:
    """`docker/code-install` prints it; the engine adds a number to each line and lines of its own."""
    engine = tmp_path / "engine"
    conflict = "error: my_model/requirements.txt: found torch==2.4.0, expected torch==2.13.0 as in the image"
    case = f"build*code.Dockerfile*) echo '#12 1.24 {conflict}'; echo exit code 1; exit 1 ;;\n    --version)"
    engine.write_text(engine.read_text().replace("--version)", case))
    (tmp_path / "the caller" / "my_model").mkdir()
    (tmp_path / "the caller" / "my_model" / "__init__.py").touch()
    done = script("build", "rfs", "--code", "my_model")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, conflict)
