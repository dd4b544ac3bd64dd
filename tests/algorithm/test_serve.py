"""Cases of the algorithm in one server process: answers, faults, and an unusable model."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from contract.io.files import read_json
from contract.packages import read_identity
from tests.faults.forked import Forked, Forks
from tests.server_calls import call


def find_open_files(process: int, *folders: Path) -> list[str]:
    targets = []
    for link in (Path(f"/proc/{process}/cwd"), *Path(f"/proc/{process}/fd").iterdir()):
        with suppress(FileNotFoundError):  # closed since it was listed: the reply's own connection is one
            targets.append(str(link.readlink()))
    return [target for target in targets if any(target.startswith(str(folder.resolve())) for folder in folders)]


@contextmanager
def start_server(forks: Forks, case, package: Path, task: str, *options: str) -> Iterator[tuple[Forked, int]]:
    """Start `python -m algorithm --serve` over a case's folders; until it has ended `forks` starts nothing else."""
    words = ["algorithm", "--task", task, "--serve", "--port", "0", "--device", "cpu"]
    folders = ["--input", str(case.input), "--output", str(case.output), "--model", str(package)]
    process = forks.begin(case.root, [*words, *folders, *options])
    try:
        assert process.stderr is not None
        said = next(line for line in process.stderr if "ready for cases on port" in line)
        yield process, int(said.rsplit(" ", 1)[1])
    finally:
        process.kill()


def predict_in_new_process(forks: Forks, case, package: Path, task: str, *options: str) -> dict[str, bytes]:
    """Return the files that a new process writes for the case."""
    shutil.rmtree(case.output, ignore_errors=True)
    words = ["algorithm", "--task", task, "--device", "cpu", "--model", str(package), *options]
    process = forks.begin(case.root, [*words, "--input", str(case.input), "--output", str(case.output)])
    said = process.communicate()[1]
    assert process.returncode == 0, said
    return read_files(case.output)


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_cases_of_the_algorithm_one_after_the_other(forks: Forks, case_folder, tiny_package: Path):
    """Serve a good case, a truncated one, and the good one again: the bytes are those of one process for each case."""
    case = case_folder.write()
    expected = predict_in_new_process(forks, case, tiny_package, "1")
    mask = case.output / "images" / "tumor-lymph-node-segmentation"
    assert [path.name for path in mask.iterdir()] == [Path(name).name for name in expected]
    whole = case.ct_path.read_bytes()
    with start_server(forks, case, tiny_package, "1") as (process, port):
        for _ in range(2):
            status, said = call(port, "POST", "/invoke")
            assert (status, said.split(":")[0]) == (201, "segmentation answered by package tiny")
            assert read_files(case.output) == expected
            assert find_open_files(process.pid, case.input, case.output) == []
            case.ct_path.write_bytes(whole[: len(whole) * 2 // 3])
            status, said = call(port, "POST", "/invoke")
            assert status == 500
            assert said.startswith("0a1b2c3d-ct.mha: truncated, ")
            assert not any(path.is_file() for path in case.output.rglob("*"))
            assert not mask.exists()
            case.ct_path.write_bytes(whole)
        process.terminate()
        process.communicate()
        assert process.returncode == 0


def test_a_head_without_a_network_is_served(forks: Forks, case_folder, tiny_package: Path, tmp_path: Path):
    """An answer or record of an earlier case does not survive a case that fails."""
    case, record = case_folder.write(), tmp_path / "record.json"
    with start_server(forks, case, tiny_package, "rfs", "--method", "clinical", "--record", str(record)) as (_, port):
        assert call(port, "POST", "/invoke")[0] == 201
        assert (case.output / "rfs.json").is_file()
        assert read_json(record)["package"]["manifest_sha256"] == read_identity(tiny_package).manifest_sha256
        case.ehr_path.write_text("[")
        assert call(port, "POST", "/invoke")[0] == 500
        assert list(case.output.iterdir()) == []
        assert not record.exists()
