"""Command lines of containers, with a client that only records its arguments."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from contract.errors import EngineError
from rehearsal.platform.runs import find_run_failure
from rehearsal.runners.containers import ContainerEngine, ContainerRunner
from rehearsal.runners.runner import GIB, Call, Limits

CLIENT = """#!{python}
import json, sys
from pathlib import Path

if sys.argv[1:3] == ["image", "inspect"]:
    labels = {{"org.grand-challenge.api-method": "{api_method}"}}
    print(json.dumps([{{"Config": {{"User": "1000", "Labels": labels}}, "Architecture": "amd64", "Size": 1}}]))
elif sys.argv[1] == "run" and "--init" in sys.argv:
    Path({log!r}).write_text(json.dumps(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("api_method", "after_the_image"), [("exec", ["--passes", "1"]), ("invoke", ["--passes", "1", "--no-serve"])]
)
def test_mounts_and_arguments(tmp_path: Path, api_method: str, after_the_image: list[str]) -> None:
    """In the container the run record is in /tmp, which is the call's folder."""
    client, log = tmp_path / "client", tmp_path / "log.json"
    client.write_text(CLIENT.format(python=sys.executable, api_method=api_method, log=str(log)))
    client.chmod(0o755)
    folders = [tmp_path / name for name in ("input", "output", "tmp", "model")]
    for folder in folders:
        folder.mkdir()
    call = Call("a-name", *folders[:3], tmp_path / "out", tmp_path / "err", Limits(16 * GIB, 60), folders[3])
    runner = ContainerRunner(ContainerEngine(str(client), is_podman=False), "an-image", ("--passes", "1"))
    assert runner.run(call).exit_code == 0
    arguments = json.loads(log.read_text())
    assert arguments[arguments.index("an-image") + 1 :] == after_the_image
    assert "--network=none" in arguments
    assert "HECKTOR_RUN_RECORD=/tmp/run-record.json" in arguments
    assert call.record_path == folders[2] / "run-record.json"
    volumes = [arguments[number + 1] for number, argument in enumerate(arguments) if argument == "--volume"]
    assert volumes == [
        f"{folders[0]}:/input:ro", f"{folders[1]}:/output", f"{folders[2]}:/tmp", f"{folders[3]}:/opt/ml/model:ro",
    ]  # fmt: skip


def test_a_container_has_neither_rights_nor_a_second_log_and_is_limited_in_processes_and_file_sizes() -> None:
    arguments = ContainerEngine("docker", is_podman=False).build_limit_arguments(Limits(16 * GIB, 60))
    expected = {"--pids-limit=4096", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--log-driver=none"}
    assert expected | {"--ulimit=fsize=4000000000:4000000000"} <= set(arguments)


# What Docker prints for `--gpus all` on a machine without the toolkit.
NO_GPU = """docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]]

Run 'docker run --help' for more information
"""
FAILING = """#!{python}
import json, sys
if sys.argv[1:3] == ["image", "inspect"]:
    print(json.dumps([{{"Config": {{"User": "1000"}}, "Architecture": "amd64", "Size": 1}}]))
elif sys.argv[1] == "inspect" and "{{{{.State.StartedAt}}}}" in sys.argv:
    print({started!r})
elif sys.argv[1] == "run":
    sys.stderr.write({message!r})
    sys.exit(125)
"""


def make_failing_call(
    tmp_path: Path, message: str, started: str, *, is_podman: bool = False
) -> tuple[ContainerRunner, Call]:
    """Make a runner whose client ends with status 125, and a call."""
    client = tmp_path / "client"
    client.write_text(FAILING.format(python=sys.executable, message=message, started=started))
    client.chmod(0o755)
    folders = [tmp_path / name for name in ("input", "output", "tmp")]
    for folder in folders:
        folder.mkdir()
    call = Call("a-name", *folders, tmp_path / "out", tmp_path / "err", Limits(16 * GIB, 60))
    engine = ContainerEngine(str(client), is_podman=is_podman)
    return ContainerRunner(engine, "sha256:abc", with_gpus=True, title="my-image:cuda"), call


def test_gpus_that_are_not_there_are_named_with_what_to_install(tmp_path: Path) -> None:
    """The engine's cause comes before its hint at `--help`, and the image has the name that the user typed."""
    runner, call = make_failing_call(tmp_path, NO_GPU, "0001-01-01T00:00:00Z")
    for start in (runner.run, runner.start):
        with pytest.raises(EngineError) as error:
            start(call)
        message = str(error.value)
        assert message.startswith("docker could not start my-image:cuda: docker: Error response from daemon: could not")
        assert 'could not select device driver "" with capabilities: [[gpu]], expected an NVIDIA driver' in message
        assert "NVIDIA Container Toolkit" in message
        assert "--help" not in message


def test_a_message_of_several_lines_is_kept_whole(tmp_path: Path) -> None:
    """Podman's line `Error: ...` may be followed by lines that name the cause. No container exists."""
    message = "Error: setting up CDI devices:\nunresolvable CDI devices nvidia.com/gpu=all\n"
    runner, call = make_failing_call(tmp_path, message, "", is_podman=True)
    with pytest.raises(
        EngineError, match=r"CDI devices: unresolvable CDI devices nvidia\.com/gpu=all, expected an NVIDIA"
    ):
        runner.run(call)
    with pytest.raises(EngineError, match=r"^podman run: Error: setting up CDI devices: unresolvable"):
        runner.engine.run("run")


def test_a_program_may_end_with_status_125(tmp_path: Path) -> None:
    """If the engine reports that the container ran, only its job fails."""
    runner, call = make_failing_call(tmp_path, "my own error\n", "2026-11-28T20:31:39.7Z")
    assert runner.run(call).exit_code == 125
    assert find_run_failure(runner.run(call), call.limits, call.stderr).endswith(
        "its last line on stderr: my own error"
    )


def test_an_image_that_is_not_there_is_named_once(tmp_path: Path) -> None:
    """Docker's own message names the image twice."""
    client = tmp_path / "client"
    client.write_text("#!/bin/sh\necho\necho 'Error: no such image: x: No such image: x:latest' >&2\nexit 1\n")
    client.chmod(0o755)
    with pytest.raises(EngineError) as error:
        ContainerEngine(str(client), is_podman=False).find_image_id("x")
    assert str(error.value) == "x: docker has no such image, expected one of `docker images`"


# An engine in a file: names of images with their IDs. Loading gives the names `evaluator:latest` and `new:1` to images.
ENGINE = """#!{python}
import json, sys
from pathlib import Path

state, arguments = Path({state!r}), sys.argv[1:]
names = json.loads(state.read_text())
if arguments[:2] == ["image", "ls"]:
    print(*(f"{{name}} {{image_id}}" for name, image_id in names.items()), sep="\\n")
elif arguments[:2] == ["image", "inspect"]:
    print(names.get(arguments[-1], arguments[-1]))
elif arguments == ["load"]:
    sys.stdin.buffer.read()
    names |= {{"evaluator:latest": "sha256:" + "b" * 64, "new:1": "sha256:" + {second!r} * 64}}
    print("Loaded image: evaluator:latest\\nLoaded image: new:1")
elif arguments[0] == "tag":
    names[arguments[2]] = names.get(arguments[1], arguments[1])
elif arguments[0] == "rmi":
    del names[arguments[1]]
state.write_text(json.dumps(names))
"""


@pytest.mark.parametrize("second", ["b", "c"])
def test_an_archive_takes_no_name_of_the_engine(tmp_path: Path, second: str) -> None:
    """Another image's name is given back, a new one is removed; the image is known by its ID.

    Archives of two images, sha256:bb and sha256:cc, are refused after that.
    """
    client, state, archive = tmp_path / "client", tmp_path / "state.json", tmp_path / "stranger.tar"
    client.write_text(ENGINE.format(python=sys.executable, state=str(state), second=second))
    client.chmod(0o755)
    archive.touch()
    evaluator = "sha256:" + "a" * 64
    state.write_text(json.dumps({"evaluator:latest": evaluator}))
    engine = ContainerEngine(str(client), is_podman=False)
    if second == "b":
        assert engine.load(archive) == "sha256:" + "b" * 64
    else:
        with pytest.raises(EngineError, match=r"^stranger\.tar: 2 images in it, expected exactly one"):
            engine.load(archive)
    names = json.loads(state.read_text())
    own = {f"hecktor-loaded:{second * 12}": "sha256:" + second * 64}
    assert names == {"evaluator:latest": evaluator, **own}
