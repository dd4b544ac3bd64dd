"""The training page of all folds: one HTML file without scripts that reloads itself."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from importlib.resources import files
from operator import attrgetter
from pathlib import Path
from string import Template
from typing import Final

from baseline.network.progress.curves import CURVES, Curves, moving_average, read_curves
from baseline.network.progress.figures import PREDICTED_COLOUR
from baseline.work import CONFIGURATIONS
from contract.errors import InputError
from contract.files import write_text
from evaluation.report.display import CT_WINDOW_HU, PET_SHOWN_SUV, REFERENCE_COLOUR

REFRESH_S: Final = 30
FIGURE: Final = "curves.svg"
PICTURE: Final = "validation.jpg"
# A fold without news for longer than both of these has probably stopped.
_SILENT_EPOCHS: Final = 5
_SILENT_S: Final = 120.0
# Other folds may write in the meantime; each writes the page too, so giving up loses nothing.
_ATTEMPTS: Final = 5

_FOOTER: Final = (
    "Pseudo-Dice: nnU-Net's Dice over the random validation patches of an epoch, not the Dice of whole patients. "
    "The moving average has a decay of 0.9. The estimated end assumes the median time of the latest ten epochs. "
    "Pictures: one patch around the largest lesion, one pass, no mirroring; the Dice is that of the patch, the "
    "volume that of all lesions of the patient."
)
_HEADS: Final = (
    "", "Epoch", "Time per epoch", "Estimated end", "Learning rate", "Training loss", "Validation loss",
    "Pseudo-Dice GTVp (average)", "Pseudo-Dice GTVn (average)",
)  # fmt: skip
_LEGEND: Final = Template(
    '<ul class="legend"><li><span class="swatch" style="background:$reference"></span>reference</li>'
    '<li><span class="swatch" style="background:$predicted"></span>prediction with the weights of that epoch</li>'
    '<li><span class="line"></span>GTVp</li><li><span class="line dashed"></span>GTVn</li>'
    "<li>CT $low to $high HU, PET $least to $most SUV</li></ul>"
)


@dataclass(frozen=True)
class _Fold:
    """Files of one fold; figure and picture are empty if they do not exist yet."""

    curves: Curves
    figure: str
    picture: bytes


def write_page(folder: Path, now: float) -> Path:
    """Write `folder / "index.html"` from the files of every fold in `folder/<network>/<fold>`.

    Several folds may do so at once without a lock, which some shared file systems lack: each writes the whole page and
    writes it again if another fold's files have changed since it read them.

    `now` is in seconds since 1970.
    """
    page = folder / "index.html"
    for _ in range(_ATTEMPTS):
        before = _stamps(folder)
        write_text(page, page_of(folder, now))
        if _stamps(folder) == before:
            break
    return page


def page_of(folder: Path, now: float) -> str:
    """The page of all folds below `folder`; unreadable folds are listed with the reason."""
    entries = [_read(path) for path in folder.glob(f"*/*/{CURVES}")]
    warnings = sorted(fold for fold in entries if isinstance(fold, str))
    folds = sorted(
        (fold for fold in entries if isinstance(fold, _Fold)), key=attrgetter("curves.network", "curves.fold")
    )
    several = len({fold.curves.network for fold in folds}) > 1
    titles = [_title(fold.curves, several) for fold in folds]
    sections = [_overview(folds, titles, now)]
    sections += [_section(fold, title, now) for fold, title in zip(folds, titles, strict=True)]
    running = sum(not fold.curves.finished for fold in folds)
    lead = f"{len(folds)} started, {len(folds) - running} finished. As of {_clock(now)}; reloads every {REFRESH_S} s."
    listed = "".join(f"<li>{escape(text)}</li>" for text in warnings)
    return Template(files("baseline.network.progress").joinpath("page.html").read_text(encoding="utf-8")).substitute(
        refresh_s=REFRESH_S,
        lead=escape(lead),
        warnings=f'<ul class="warnings">{listed}</ul>' if warnings else "",
        sections="\n".join(sections),
        footer=escape(_FOOTER),
    )


def _stamps(folder: Path) -> dict[Path, tuple[int, int]]:
    """Inode and modification time of each fold's files, which change when a file is replaced."""
    states = {path: path.stat() for name in (CURVES, FIGURE, PICTURE) for path in folder.glob(f"*/*/{name}")}
    return {path: (state.st_ino, state.st_mtime_ns) for path, state in states.items()}


def _read(path: Path) -> _Fold | str:
    """A fold, or the reason why it cannot be shown."""
    figure, picture = path.with_name(FIGURE), path.with_name(PICTURE)
    try:
        curves = read_curves(path)
    except InputError as problem:
        return problem.message
    svg = figure.read_text(encoding="utf-8") if figure.is_file() else ""
    return _Fold(curves, svg, picture.read_bytes() if picture.is_file() else b"")


def _title(curves: Curves, several: bool) -> str:
    """Name of the split, with the backbone if there are several networks."""
    backbone = {configuration: name for name, configuration in CONFIGURATIONS.items()}
    return f"{curves.name}, {backbone.get(curves.network.split('__')[-1], curves.network)}" if several else curves.name


def _overview(folds: Sequence[_Fold], titles: Sequence[str], now: float) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in _HEADS)
    rows = [[escape(title), *_cells(fold.curves, now)] for fold, title in zip(folds, titles, strict=True)]
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<section><div class="scroll">{table}</div></section>'


def _cells(curves: Curves, now: float) -> list[str]:
    done, epochs = min(curves.done, curves.epochs), curves.epochs
    return [
        f'<progress max="{epochs}" value="{done}"></progress> {done} of {epochs}',
        _duration(curves.epoch_seconds),
        escape(_end(curves, now)),
        _number(curves.learning_rate[-1], ".2e"),
        _number(curves.training_loss[-1], ".3f"),
        _number(curves.validation_loss[-1], ".3f"),
        *(
            f"{_number(values[-1], '.3f')} ({_number(moving_average(values)[-1], '.3f')})"
            for values in curves.dice.values()
        ),
    ]


def _section(fold: _Fold, title: str, now: float) -> str:
    curves = fold.curves
    pictures = ""
    if fold.picture:
        source = base64.b64encode(fold.picture).decode("ascii")
        about = f"{title}: CT and PET of validation patients with reference and predicted contours"
        pictures = f'{_legend()}<img alt="{escape(about)}" src="data:image/jpeg;base64,{source}">'
    facts = f"epoch {curves.done} of {curves.epochs}, {_end(curves, now)}"
    return f'<section><h2>{escape(title)}</h2><p class="facts">{escape(facts)}</p>{fold.figure}{pictures}</section>'


def _legend() -> str:
    low, high, least, most = (_number(value, ".0f") for value in (*CT_WINDOW_HU, *PET_SHOWN_SUV))
    colours = {"reference": REFERENCE_COLOUR, "predicted": PREDICTED_COLOUR}
    return _LEGEND.substitute(colours, low=low, high=high, least=least, most=most)


def _end(curves: Curves, now: float) -> str:
    """The expected end, or that the fold is finished or silent."""
    if curves.finished:
        return f"finished {_clock(curves.written)}"
    if now - curves.written > max(_SILENT_S, _SILENT_EPOCHS * curves.epoch_seconds):
        return f"no news since {_clock(curves.written)}"
    left = max(0.0, curves.estimated_end - now)
    return f"{_clock(curves.estimated_end)}, in {_duration(left)}"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form).replace("-", "\N{MINUS SIGN}")


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M %Z")


def _duration(seconds: float) -> str:
    """Seconds in a readable unit: 12.3 s, 4 min 05 s, 3 h 20 min, 2 d 03 h."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24:02d} h"
