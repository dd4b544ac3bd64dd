"""`hecktor new model DIR`: write the skeleton of a model of the user's own."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from typing import Final

from contract.errors import OutputError
from contract.files import whole_folder

_TEMPLATE: Final = Path(__file__).with_name("template")


def main(argv: Sequence[str] | None = None) -> int:
    """Write the folder and print what to run next. Raises `OutputError` for a folder that exists."""
    parser = argparse.ArgumentParser(prog="hecktor new", description="Write the skeleton of a model of your own.")
    parser.add_argument(
        "kind", choices=("model",), help="a folder of code with a network, features and a head that run as they are"
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="new folder, whose name Python can import: my_model")
    options = parser.parse_args(argv)
    folder: Path = options.folder
    if not folder.name.isidentifier() or iskeyword(folder.name):
        raise OutputError(folder.name, "a name that Python cannot import", "letters, digits and _, such as my_model")
    if folder.exists():
        raise OutputError(folder.name, "exists", "a new folder")
    if find_spec(folder.name) is not None:
        raise OutputError(folder.name, "the name of an installed module", "another name, such as my_model")
    with whole_folder(folder) as partial:
        shutil.copytree(_TEMPLATE, partial, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    sys.stdout.write(
        f"written: {folder / '__init__.py'}. Next:\n"
        f"  hecktor package --code {folder} --weights {folder / 'weights'} --without-heads --output model.tar.gz\n"
    )
    return 0
