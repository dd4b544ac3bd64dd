"""Spacing of the prepared images: kept once images are prepared, and fixed once a network is trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from baseline.release.record import Spacing, read_preparation
from baseline.work import WorkFolders, planned
from contract.errors import HecktorError

# That of the preset `short`.
DEFAULT_MM: Final = (3.0, 3.0, 3.0)


def chosen_spacing(
    work: WorkFolders,
    requested: Spacing | None,
    default: Spacing = DEFAULT_MM,
    show: Callable[[str], object] = lambda _: None,
) -> Spacing:
    """The spacing (x, y, z) to prepare: the requested one, else that of the prepared images, else `default`.

    `show` gets a line if the prepared images have another spacing than `default`. Nothing is written.

    Raises:
        HecktorError: the prepared images have another spacing than requested, and a plan has trained networks.
    """
    prepared = read_preparation(work).spacing_mm if work.prepare_json.is_file() else None
    if prepared is None or requested == prepared:
        return requested or default
    if requested is None:
        if prepared != default:
            show(f"spacing: the prepared images keep {as_text(prepared)} mm; the preset has {as_text(default)} mm")
        return prepared
    trained = [plan.name for plan in planned(work.shared) if any(plan.results.rglob("checkpoint_*.pth"))]
    if trained:
        found = f"found {as_text(requested)}, and networks (plan {trained[0]}) in images of {as_text(prepared)} mm"
        raise HecktorError("--spacing-mm", found, new_spacing_advice(requested))
    return requested


def new_spacing_advice(spacing: Spacing) -> str:
    """How to train at another spacing without changing the prepared images."""
    return f"`hecktor train plan --name NAME --spacing-mm {as_text(spacing)}`, or a new working directory"


def as_text(spacing: Spacing) -> str:
    """The spacing as `--spacing-mm` takes it."""
    return " ".join(f"{step:g}" for step in spacing)
