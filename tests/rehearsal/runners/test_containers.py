"""The command line of a container, with a client that only records its arguments."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

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
    ("api_method", "after_the_image"),
    [("exec", ["--passes", "1"]), ("invoke", ["--passes", "1", "--no-serve"])],
)
def test_mounts_and_arguments(tmp_path: Path, api_method: str, after_the_image: list[str]) -> None:
    """The run record goes to the container's /tmp, which is the call's folder."""
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
    volumes = [arguments[number + 1] for number, one in enumerate(arguments) if one == "--volume"]
    assert volumes == [
        f"{folders[0]}:/input:ro", f"{folders[1]}:/output", f"{folders[2]}:/tmp", f"{folders[3]}:/opt/ml/model:ro",
    ]  # fmt: skip
