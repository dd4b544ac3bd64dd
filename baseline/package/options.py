"""Options of packages and of trainings elsewhere: where to write, and the numbers of channels and labels."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from contract.labels import LESIONS


def package_output(text: str) -> Path:
    """Read where to write a model package; argparse.ArgumentTypeError for an archive other than `.tar.gz`."""
    if text.lower().endswith((".tgz", ".tar", ".zip")):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected NAME.tar.gz, or the name of a folder")
    return Path(text)


def parse_named_numbers(text: str) -> dict[str, int]:
    """Read different numbers by name, such as CT=1,PET=0; argparse.ArgumentTypeError for any other text."""
    pairs = [part.strip().partition("=")[::2] for part in text.split(",")]
    numbers = {name: int(value) for name, value in pairs if name and value.isdecimal()}
    if len(set(numbers.values())) < len(pairs):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected different numbers by name, such as CT=1,PET=0")
    return numbers


def lesion_numbers(text: str) -> tuple[int, ...]:
    """Read a different number from 1 for GTVp and GTVn; argparse.ArgumentTypeError for any other text."""
    try:
        numbers = parse_named_numbers(text)
    except argparse.ArgumentTypeError:
        numbers = {}
    if numbers.keys() != set(LESIONS) or min(numbers.values()) < 1:
        usual = mapping_text({name: number for number, name in enumerate(LESIONS, start=1)})
        raise argparse.ArgumentTypeError(f"found {text!r}, expected {usual} or other numbers from 1")
    return tuple(numbers[name] for name in LESIONS)


def mapping_text(numbers: Mapping[str, int]) -> str:
    """Numbers by name as options take them, such as `CT=1,PET=0`."""
    return ",".join(f"{name}={number}" for name, number in numbers.items())
