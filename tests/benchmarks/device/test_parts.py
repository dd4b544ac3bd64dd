"""Deadlines and the exit status of `scripts/device-check`."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.device import check
from benchmarks.device.check import LIMIT_S, PARTS, CheckPart, run_until
from benchmarks.device.job import Limit

# A shell starts at once, also on a busy machine.
ROW = """printf '%s' '[{"name": "a", "figures": {}, "failures": []}]' >"$ROWS"; """


def make_options(device: str = "cuda") -> argparse.Namespace:
    return argparse.Namespace(device=device, quick=True, image=None)


def test_a_command_is_killed_at_its_deadline_with_its_children(tmp_path: Path) -> None:
    """Its child would write after three seconds."""
    begun = time.monotonic()
    assert run_until(["sh", "-c", f"(sleep 3; touch {tmp_path}/late) & sleep 60"], 1.0, tmp_path / "log") is None
    assert time.monotonic() - begun < 30
    time.sleep(3.5)
    assert not (tmp_path / "late").exists()


def test_a_command_in_time_gives_its_status_and_its_log(tmp_path: Path) -> None:
    assert run_until(["sh", "-c", "echo done; exit 7"], 60, tmp_path / "log") == 7
    assert (tmp_path / "log").read_text() == "done\n"


def run_script(script: str, monkeypatch: pytest.MonkeyPatch, folder: Path, name: str = "tiles", **more: float) -> Any:
    """Run a part whose process is a shell script, with a deadline of `deadline_s`."""
    shell = ["env", f"ROWS={folder / name}.json", "sh", "-c", script]
    monkeypatch.setattr(check, "run_until", lambda _, deadline_s, log: run_until(shell, deadline_s, log))
    part = CheckPart("speed:time_tiles", more.get("deadline_s", 60.0), "")
    return check.run_part(name, part, make_options(), folder, time.monotonic() - more.get("spent_s", 0.0))


def test_a_part_that_outruns_its_deadline_keeps_its_rows_and_the_next_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    slow = run_script(f"{ROW} sleep 60", monkeypatch, tmp_path, deadline_s=1.5)
    good = run_script(ROW, monkeypatch, tmp_path, "patients")
    assert [slow["state"], good["state"]] == ["stopped at its deadline", "done"]
    assert slow["rows"] == good["rows"] == [{"name": "a", "figures": {}, "failures": []}]
    document = check.summarise("cuda", True, [slow, good])
    assert (document["status"], document["stopped"]) == (0, ["tiles"])


def test_no_part_gets_more_than_the_remaining_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of 540 s 539 are spent."""
    last = run_script("sleep 60", monkeypatch, tmp_path, spent_s=LIMIT_S - 1)
    assert last["state"] == "stopped at its deadline"
    assert last["deadline_s"] == pytest.approx(1.0, abs=0.1)
    document = check.summarise("cuda", True, [last])
    assert (document["status"], document["failures"]) == (1, ["tiles: stopped at its deadline"])  # it saw nothing


def test_a_part_with_an_error_fails_and_shows_its_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    failed = run_script("echo no driver; exit 1", monkeypatch, tmp_path)
    assert (failed["state"], failed["log"]) == ("failed", ["no driver"])
    assert check.summarise("cuda", True, [failed])["failures"] == ["tiles: failed"]


@pytest.mark.parametrize(("figure", "failures"), [(14.0, 0), (14.1, 1), (None, 1)])
def test_limits(figure: float | None, failures: int) -> None:
    """At most 14; a figure that was not measured fails."""
    failure = Limit("GiB", maximum=14.0).find_failure({} if figure is None else {"GiB": figure})
    assert (failure is not None) == bool(failures)
    assert Limit("GiB", minimum=1).find_failure({"GiB": float("nan")}) is not None


def test_selected_parts() -> None:
    """First comes the machine; the image is tested only if it is named."""
    assert check.select_parts(None, None) == [name for name in PARTS if name != "image"]
    assert check.select_parts(["tiles"], None) == ["machine", "tiles"]
    assert check.select_parts(["tiles"], "an:image") == ["machine", "tiles", "image"]


def test_without_a_card_nothing_else_runs_and_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    started = []

    def part(name: str, *_: Any) -> dict[str, Any]:
        started.append(name)
        return {"part": name, "state": "done", "rows": [{"name": name, "figures": {"cards": 0}, "failures": []}]}

    monkeypatch.setattr(check, "run_part", part)
    options = argparse.Namespace(device="cuda", quick=True, only=None, image=None, output=tmp_path / "check.json")
    monkeypatch.setenv("PYTHONPATH", "")
    assert check.check(options, time.monotonic()) == check.NO_CARD == 3
    assert (started, capsys.readouterr().out, list(tmp_path.iterdir())) == (["machine"], "", [])
