"""Options of packages."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from baseline.package.options import lesion_numbers, package_output


@pytest.mark.parametrize("text", ["m.tgz", "m.tar", "M.ZIP"])
def test_a_package_is_a_folder_or_tar_gz(text: str) -> None:
    """Another archive's name would otherwise be that of a folder."""
    assert package_output("out/m.tar.gz") == Path("out/m.tar.gz")
    assert package_output("m.v2") == Path("m.v2")
    with pytest.raises(argparse.ArgumentTypeError, match=rf"^found '{text}'"):
        package_output(text)


def test_numbers_by_name() -> None:
    assert lesion_numbers("GTVn=3, GTVp=7") == (7, 3)
    for text in ("GTVp=0,GTVn=1", "GTVp=2,GTVn=2", "GTVp=2", "GTVp=x,GTVn=1"):
        with pytest.raises(argparse.ArgumentTypeError, match=rf"^found '{text}', expected GTVp=1,GTVn=2 or other"):
            lesion_numbers(text)
