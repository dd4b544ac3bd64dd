"""`hecktor new model DIR` and `hecktor new edition DIR`: write a working skeleton."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from typing import Final

from contract.documents import NAME_PATTERN
from contract.editions import list_editions
from contract.errors import OutputError
from contract.io.files import atomic_folder, write_text
from contract.io.locks import lock_output
from contract.options import Parser

_HERE: Final = Path(__file__).parent
# Editors use this schema to check an edition; a test compares the schema with the class of editions.
SCHEMA: Final = _HERE / "edition.schema.json"
# The edition's name in the template, which is replaced by the name of the folder.
_EXAMPLE: Final = "my_edition"
_NEXT_STEPS_OF_MODEL: Final = """\
written: {folder}/__init__.py. Next:
  hecktor package --code {folder} --weights {folder}/weights --without-heads --output model.tar.gz
"""
_NEXT_STEPS_OF_EDITION: Final = """\
written: {folder}/edition.json. Next:
  hecktor check-edition {folder}/edition.json
  hecktor phantoms --edition {folder}/edition.json --patients 8 --seed 3 --layout release --output release
  hecktor train all --edition {folder}/edition.json --release release --folds 2 --epochs 2 --iterations 10 \\
    --work work --output model.tar.gz
  hecktor rehearse --model model.tar.gz --cases release --process --output out/team
  hecktor rank out/team/metrics.json --output out
  hecktor report --results out --output report
docs/organise.md#other-inputs-answers-or-tasks prepares a phase without a training.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Write the folder and print the next commands; raise `OutputError` if the folder exists."""
    parser = Parser(prog="hecktor new", description="Write the skeleton of a model or of an edition.")
    kind_help = (
        "model: a folder of code with a network, features and a head; edition: a custom challenge as one JSON file; "
        "both work without changes"
    )
    parser.add_argument("kind", choices=("model", "edition"), help=kind_help)
    folder_help = "new folder; the Python package or edition gets its name, such as my_model or my_edition"
    parser.add_argument("folder", type=Path, metavar="DIR", help=folder_help)
    options = parser.parse_args(argv)
    folder: Path = options.folder
    if options.kind == "model":
        _check_module(folder)
        write, next_commands = _write_model, _NEXT_STEPS_OF_MODEL
    else:
        _check_edition(folder)
        write, next_commands = _write_edition, _NEXT_STEPS_OF_EDITION
    with lock_output(folder), atomic_folder(folder) as partial:
        write(partial, folder.name)
    sys.stdout.write(next_commands.format(folder=shlex.quote(str(folder))))
    return 0


def _check_module(folder: Path) -> None:
    name = folder.name
    if not name.isidentifier() or iskeyword(name):
        raise OutputError(name, "a name that Python cannot import", "letters, digits and _, such as my_model")
    _check_new(folder)
    if find_spec(name) is not None:
        raise OutputError(name, "the name of an installed module", "another name, such as my_model")


def _check_edition(folder: Path) -> None:
    name = folder.name
    if not re.fullmatch(NAME_PATTERN, name):
        expected = f"lower-case letters, digits, - and _, such as {_EXAMPLE}"
        raise OutputError(name, "a name that an edition cannot have", expected)
    if name in list_editions():
        raise OutputError(name, "the name of an edition of the package", f"another name, such as {_EXAMPLE}")
    _check_new(folder)


def _check_new(folder: Path) -> None:
    if folder.exists():
        raise OutputError(folder.name, "exists", "a new folder")


def _write_model(folder: Path, name: str) -> None:
    del name  # The code of the template works in a folder of any name.
    shutil.copytree(_HERE / "template", folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))


def _write_edition(folder: Path, name: str) -> None:
    example = (_HERE / "edition_template.json").read_text(encoding="utf-8")
    write_text(folder / "edition.json", example.replace(_EXAMPLE, name))
    write_text(folder / SCHEMA.name, SCHEMA.read_text(encoding="utf-8"))
