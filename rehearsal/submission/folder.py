"""The folder of files to upload, which get their final names together after all of them have passed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from contract.documents import Document
from contract.errors import EngineError, HecktorError, OutputError, unwritable
from contract.files import write_json, write_text

README: Final = "README.md"
REHEARSAL: Final = "rehearsal"
FAILED: Final = "failed"

Reporter = Callable[[str], None]


def check_folder(output: Path, record: str, what: str) -> None:
    """Raise OutputError for a folder that holds anything but an earlier `what`, because its files would be replaced."""
    if output.is_dir() and any(output.iterdir()) and not ({record, FAILED} & {path.name for path in output.iterdir()}):
        expected = f"a new name or the folder of an earlier {what}"
        raise OutputError(output.name, f"exists and is not the folder of a {what}", expected)


@contextmanager
def scratch_folder(output: Path) -> Iterator[Path]:
    """A temporary folder in `output` that an image's user may enter; OSError becomes `OutputError`."""
    is_new = not output.exists()
    try:
        output.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=output) as scratch:
            Path(scratch).chmod(0o755)
            yield Path(scratch)
    except OSError as problem:
        raise unwritable(output.name, problem) from None
    finally:
        if is_new and output.is_dir() and not any(output.iterdir()):
            output.rmdir()


@contextmanager
def failure_keeps_logs(scratch: Path, output: Path) -> Iterator[None]:
    """Move the rehearsal to `failed/` in `output` if the block raises a HecktorError, whose message then says so."""
    try:
        yield
    except HecktorError as problem:
        shutil.rmtree(output / FAILED, ignore_errors=True)
        shutil.move(scratch / REHEARSAL, output / FAILED)
        raise type(problem)(f"{problem.message}; no file was replaced, see the logs in {FAILED}/") from None


def replace_files(
    scratch: Path,
    output: Path,
    names: Sequence[str],
    earlier: Sequence[str],
    readme: str,
    record: tuple[str, Document],
) -> list[str]:
    """Move `names` and the rehearsal from `scratch` to `output` in place of the `earlier` files.

    The record is removed first and written last, so it vouches for the others. Returns the earlier files that have no
    successor, to be named.
    """
    gone = [name for name in earlier if name not in names and (output / name).is_file()]
    (output / record[0]).unlink(missing_ok=True)
    for name in (README, *earlier):
        (output / name).unlink(missing_ok=True)
    for folder in (REHEARSAL, FAILED):
        shutil.rmtree(output / folder, ignore_errors=True)
    for name in (*names, REHEARSAL):
        (scratch / name).rename(output / name)
    write_text(output / README, readme)
    write_json(output / record[0], record[1].model_dump(mode="json"))
    return gone


def without_archives(why: EngineError, made: str, option: str) -> EngineError:
    """The error for files that were made without the requested images; `option` asks for none."""
    return EngineError(
        f"{why.message}; no image archives were made. {made} was made and rehearsed with plain processes. "
        f"Start an engine (`scripts/engine` on Debian) and run this again, or use {option}"
    )
