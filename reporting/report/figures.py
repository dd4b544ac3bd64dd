"""Figures of a report as SVG and PDF files: each analysis with a chart, drawn with matplotlib as the page draws it."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import matplotlib as mpl
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from contract.io.files import write_bytes
from reporting.analyses.analysis import Analysis
from reporting.page.html import NEUTRAL, TEAM_COLOURS

Row: TypeAlias = Mapping[str, Any]

SUFFIXES: Final = (".svg", ".pdf")
# The light colours of reporting/page/page.css: paper is white.
_SERIES_COLOURS: Final = ("#c9772b", "#23486f", "#6f8f2f", "#8a6fae", "#b0506a", "#3f8f8f")
_BAR, _SOFT, _LINE = "#4c7ba8", "#54616f", "#dde3e9"
_LEVELS: Final = (
    (0.001, "#0b6b60", "white", "p < 0.001"),
    (0.01, "#4fa89c", "black", "p < 0.01"),
    (0.05, "#b5dcd6", "black", "p < 0.05"),
    (math.inf, "#eef1f4", _SOFT, "not significant"),
)
_SEQUENTIAL: Final = LinearSegmentedColormap.from_list("values", ["#f1f5f9", "#0b5cad"])
_DASHES: Final = ("solid", (0, (5, 2)), (0, (1.5, 2)), (0, (7, 2, 1.5, 2)), (0, (10, 3)))
_MARKERS: Final = ("o", "s", "^", "D", "*")
# Texts are text, also a dollar sign in a team's name; fonts are embedded, as journals ask for.
_SETTINGS: Final[Any] = {
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "hecktor",
    "pdf.fonttype": 42,
    "font.size": 8,
    "axes.edgecolor": _LINE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 8,
    "axes.titleweight": "bold",
    "xtick.color": _SOFT,
    "ytick.color": _SOFT,
    "xtick.labelcolor": "black",
    "ytick.labelcolor": "black",
}
_PAGE_INCHES: Final = 10.5
_MIN_INCHES: Final = 5.0
_LEGEND_COLUMNS: Final = 4
# Letters of 8 points, the width of a wide one.
_LETTERS_PER_INCH: Final = 14
_MAX_LABEL_LENGTH: Final = 32
_MAX_FLAT_LABELS: Final = 3
_LINE_INCHES: Final = 0.22
_MIN_BRIGHTNESS_FOR_BLACK: Final = 0.5


@dataclass(frozen=True)
class Chart:
    """The chart of one analysis with the colour of each team."""

    analysis: Analysis
    colours: Mapping[str, str]

    @property
    def kind(self) -> str:
        """Return the kind of the chart."""
        return str(self.analysis.chart["kind"])

    @property
    def series(self) -> list[Any]:
        """Return the values of the column that separates lines, bars or points; one None without such a column."""
        return self.values("series") or [None]

    def key(self, role: str) -> str:
        """Return the key of the column with a role in the chart, empty if the chart has no such column."""
        return str(self.analysis.chart.get(role, ""))

    def title(self, role: str) -> str:
        """Return the heading of the column with a role in the chart."""
        return self.analysis.columns.get(self.key(role), "")

    def values(self, role: str, rows: Sequence[Row] | None = None) -> list[Any]:
        """Return the different values of the column with a role, in the order of the rows."""
        shown = self.analysis.rows if rows is None else rows
        values = dict.fromkeys(row.get(self.key(role)) for row in shown)
        return [value for value in values if value is not None]

    def number(self, row: Row, role: str) -> float | None:
        """Return the finite number that a row has in the column with a role; None if there is no such number."""
        value = row.get(self.key(role))
        if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
            return None
        return float(value)

    def numbers(self, row: Row, *roles: str) -> list[float]:
        """Return the numbers of a row in the columns with these roles; empty if one of them is absent."""
        numbers = [self.number(row, role) for role in roles]
        present = [number for number in numbers if number is not None]
        return present if len(present) == len(numbers) else []

    def colour(self, row: Row) -> str:
        """Return the colour of a row: of its series, or else of its team."""
        key = self.key("series")
        if key and key != "team" and len(self.series) > 1:
            return _SERIES_COLOURS[self.series.index(row.get(key)) % len(_SERIES_COLOURS)]
        team = row.get("team")
        return self.colours.get(str(team), NEUTRAL) if team is not None else _BAR

    def style_number(self, row: Row) -> int:
        """Return the place of a row's series among dashes and markers, for a team the place of its colour."""
        if self.key("series") != "team":
            return max(0, self.series.index(row.get(self.key("series"))) if self.key("series") else 0)
        colour = self.colour(row)
        return TEAM_COLOURS.index(colour) if colour in TEAM_COLOURS else 0


def write_figures(folder: Path, by_task: Mapping[str, Sequence[Analysis]], colours: Mapping[str, str]) -> list[Path]:
    """Write `<folder>/<task>/<name>.svg` and `.pdf` for each analysis with a chart; return the paths."""
    written: list[Path] = []
    for task, analyses in by_task.items():
        for analysis in analyses:
            if analysis.chart and analysis.rows:
                written += _write_figure(folder / task / analysis.name, Chart(analysis, colours))
    return written


# The context excludes settings of the process, such as the style that nnU-Net's progress plot leaves behind.
@style.context("default", after_reset=True)
def _write_figure(path: Path, chart: Chart) -> list[Path]:
    written = []
    with mpl.rc_context(_SETTINGS), warnings.catch_warnings():
        # An SVG holds a name's letters as text, even if the font of the PDF lacks them.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
        figure = draw_chart(chart)
        for suffix in SUFFIXES:
            target = path.with_name(f"{path.name}{suffix}")
            date = {"Date": None} if suffix == ".svg" else {"CreationDate": None}
            content = io.BytesIO()
            figure.savefig(content, format=suffix[1:], metadata=date)
            write_bytes(target, content.getvalue())
            written.append(target)
    return written


def draw_chart(chart: Chart) -> Figure:
    """Draw the panels of a chart below its title.

    Raises:
        ValueError: The chart is of an unknown kind.
    """
    if chart.kind not in KINDS:
        raise ValueError(f"{chart.analysis.name}: unknown kind of chart {chart.kind!r}")
    draw_panel = KINDS[chart.kind]
    facets = chart.values("facet") or [None]
    handles = _make_legend(chart)
    size = _choose_panel_size(chart)
    columns = min(len(facets), max(1, int(_PAGE_INCHES / size.full_width)))
    lines = math.ceil(len(facets) / columns)
    bottom = 0.22 * math.ceil(len(handles) / _LEGEND_COLUMNS) + 0.05
    width, height = max(_MIN_INCHES, columns * size.full_width), bottom + lines * size.full_height + 0.25
    figure = Figure(figsize=(width, height))
    figure.text(0.1 / width, 1 - 0.2 / height, chart.analysis.title, fontsize=9)
    for place, facet in enumerate(facets):
        line, column = divmod(place, columns)
        left = column * size.full_width + size.left
        low = bottom + (lines - 1 - line) * size.full_height + size.bottom
        axes = figure.add_axes((left / width, low / height, size.width / width, size.height / height))
        rows = [row for row in chart.analysis.rows if facet is None or row.get(chart.key("facet")) == facet]
        draw_panel(axes, rows, chart)
        if facet is not None:
            axes.set_title(_shorten(facet, int(size.full_width * _LETTERS_PER_INCH)), loc="left")
    if handles:
        figure.legend(handles=handles, loc="lower left", ncols=_LEGEND_COLUMNS, frameon=False)
    return figure


@dataclass(frozen=True)
class PanelSize:
    """Inner size of a panel, and the space for its labels at the left and at the bottom, in inches."""

    width: float
    height: float
    left: float
    bottom: float

    @property
    def full_width(self) -> float:
        """Return the width with labels and margin."""
        return self.left + self.width + 0.25

    @property
    def full_height(self) -> float:
        """Return the height with labels and title."""
        return self.bottom + self.height + 0.35


def _choose_panel_size(chart: Chart) -> PanelSize:
    """Return the size of a panel by the number and the length of its labels."""
    has_facets = bool(chart.key("facet"))
    if chart.kind == "matrix":
        across, down = chart.values("x"), chart.values("y")
        bottom = 0.35 + (_label_inches(across) if len(across) > _MAX_FLAT_LABELS else 0.15)
        return PanelSize(max(0.3 * len(across), 1.2), 0.26 * len(down), 0.2 + _label_inches(down), bottom)
    if chart.kind in ("lines", "points", "podium"):
        return PanelSize(2.3, 1.9, 0.6, 0.45) if has_facets else PanelSize(5.4, 3.4, 0.6, 0.45)
    if chart.kind == "boxes":
        names = chart.values("category")
        if chart.key("orientation") == "vertical":
            return PanelSize(max(3.0, 0.14 * len(names)), 2.4, 0.5, 0.1 + _label_inches(names))
    else:
        names = chart.values("y")
    bars = len(chart.series) if chart.kind == "bars" else 1
    height = len(names) * max(_LINE_INCHES, 0.1 * bars + 0.06)
    return PanelSize(2.2 if has_facets else 4.5, max(0.4, height), _label_inches(names), 0.45)


def _label_inches(names: Sequence[Any]) -> float:
    """Return the space that the longest name needs."""
    return 0.15 + max((len(_shorten(name)) for name in names), default=0) / _LETTERS_PER_INCH


def _shorten(text: Any, length: int = _MAX_LABEL_LENGTH) -> str:
    whole = str(text)
    return whole if len(whole) <= length else f"{whole[: length - 1]}\u2026"


def _label_categories(axes: Axes, categories: Sequence[Any]) -> None:
    """Label one line of the y axis for each category, the first one at the top."""
    axes.set_yticks(range(len(categories)), [_shorten(name) for name in categories])
    axes.set_ylim(len(categories) - 0.5, -0.5)
    axes.tick_params(length=0)
    axes.grid(axis="x", color=_LINE, linewidth=0.6)
    axes.set_axisbelow(True)


def _set_domain(axes: Axes, chart: Chart, axis: str) -> None:
    """Show the domain that the chart declares, with a margin for marks at its ends."""
    domain = chart.analysis.chart.get("domain")
    if domain:
        margin = 0.03 * (domain[1] - domain[0])
        axes.set(**{f"{axis}lim": (domain[0] - margin, domain[1] + margin)})


def _draw_intervals(axes: Axes, rows: Sequence[Row], chart: Chart) -> None:
    categories = chart.values("y")
    ends: list[float] = []
    for row in rows:
        place = categories.index(row[chart.key("y")])
        interval, value = chart.numbers(row, "low", "high"), chart.numbers(row, "x")
        if interval:
            axes.plot(interval, [place, place], color=chart.colour(row), linewidth=1.5)
        if value:
            axes.plot(value, [place], "o", color=chart.colour(row), markersize=4)
        ends += interval + value
    _label_categories(axes, categories)
    axes.set_xlabel(chart.title("x"))
    domain = chart.analysis.chart.get("domain")
    # Small differences are drawn large, as on the page.
    if domain and ends and max(ends) - min(ends) >= (domain[1] - domain[0]) / 2:
        _set_domain(axes, chart, "x")


def _draw_bars(axes: Axes, rows: Sequence[Row], chart: Chart) -> None:
    categories, series = chart.values("y"), chart.series
    height = 0.8 / len(series)
    for row in rows:
        value = chart.number(row, "x")
        if value is not None:
            part = series.index(row.get(chart.key("series"))) if chart.key("series") else 0
            middle = categories.index(row[chart.key("y")]) - 0.4 + height * (part + 0.5)
            axes.barh(middle, value, height=height, color=chart.colour(row))
    axes.axvline(0, color=_SOFT, linewidth=0.8)
    _label_categories(axes, categories)
    axes.set_xlabel(chart.title("x"))
    _set_domain(axes, chart, "x")


def _draw_blobs(axes: Axes, rows: Sequence[Row], chart: Chart) -> None:
    categories = chart.values("y")
    for row in rows:
        place = categories.index(row[chart.key("y")])
        interval = chart.numbers(row, "low", "high") if chart.key("low") else []
        if interval:
            axes.plot(interval, [place, place], color=_SOFT, linewidth=0.8, zorder=1)
        blob = chart.numbers(row, "x", "size")
        if blob:
            axes.scatter(blob[0], place, s=max(1.0, 120 * blob[1]), color=chart.colour(row), zorder=2)
    _label_categories(axes, categories)
    axes.set_xlabel(chart.title("x"))
    last = max([chart.number(row, "x") or 1 for row in chart.analysis.rows])
    axes.set_xlim(0.4, last + 0.6)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_boxes(axes: Axes, rows: Sequence[Row], chart: Chart) -> None:
    is_upright = chart.analysis.chart.get("orientation") == "vertical"
    categories = chart.values("category")

    def draw(marker: str, values: Sequence[float], place: float, **options: Any) -> None:
        places = [place] * len(values)
        points = (places, values) if is_upright else (values, places)
        axes.plot(*points, marker, **options)

    for row in rows:
        place, colour = categories.index(row[chart.key("category")]), chart.colour(row)
        whiskers, quartiles = chart.numbers(row, "low", "high"), chart.numbers(row, "q1", "q3")
        if whiskers:
            draw("-", whiskers, place, color=colour, linewidth=1)
        outliers = [value for value in row.get(chart.key("outliers")) or [] if value is not None]
        draw("o", outliers, place, color=colour, markersize=2)
        if quartiles:
            low, size = quartiles[0], quartiles[1] - quartiles[0]
            corner, sides = ((place - 0.3, low), (0.6, size)) if is_upright else ((low, place - 0.3), (size, 0.6))
            axes.add_patch(Rectangle(corner, *sides, color=colour, linewidth=0, zorder=3))
        for median in chart.numbers(row, "median"):
            draw_line = axes.hlines if is_upright else axes.vlines
            draw_line(median, place - 0.3, place + 0.3, color="white", linewidth=1.2, zorder=4)
        draw("o", chart.numbers(row, "mean"), place, color="white", markeredgecolor="black", markersize=3, zorder=5)
        for value in chart.numbers(row, "mark") if chart.key("mark") else []:
            draw("^", [value], place, color=colour, markeredgecolor="black", markersize=5, zorder=5)
            point = (place, value) if is_upright else (value, place)
            axes.annotate(_shorten(row[chart.key("name")]), point, (0, 5), textcoords="offset points", ha="center")
    if is_upright:
        axes.set_xticks(range(len(categories)), [_shorten(name) for name in categories], rotation=90)
        axes.set_xlim(-0.5, len(categories) - 0.5)
        axes.grid(axis="y", color=_LINE, linewidth=0.6)
        axes.set_axisbelow(True)
    else:
        _label_categories(axes, categories)
    _set_domain(axes, chart, "y" if is_upright else "x")


def _draw_lines(axes: Axes, rows: Sequence[Row], chart: Chart) -> None:
    is_step = bool(chart.analysis.chart.get("step"))
    for value in chart.series:
        group = [row for row in rows if value is None or row.get(chart.key("series")) == value]
        points = [(row, chart.numbers(row, "x", "y")) for row in group]
        known = [(row, point) for row, point in points if point]
        if not known:
            continue
        colour, number = chart.colour(known[0][0]), chart.style_number(known[0][0])
        marker = "" if is_step else _MARKERS[number % len(_MARKERS)]
        xs, ys = zip(*(point for _, point in known), strict=True)
        axes.plot(
            xs,
            ys,
            color=colour,
            linewidth=1.2,
            linestyle=_DASHES[number % len(_DASHES)],
            marker=marker,
            markersize=3.5,
            drawstyle="steps-post" if is_step else "default",
        )
        band = [chart.numbers(row, "x", "low", "high") for row, _ in known] if chart.key("low") else []
        ends = [point for point in band if point]
        if ends:
            places, lows, highs = zip(*ends, strict=True)
            axes.fill_between(
                places, lows, highs, color=colour, alpha=0.14, linewidth=0, step="post" if is_step else None
            )
    axes.set(xlabel=chart.title("x"), ylabel=chart.title("y"))
    axes.grid(color=_LINE, linewidth=0.6)
    _set_domain(axes, chart, "y")


def _draw_points(axes: Axes, rows: Sequence[Row], chart: Chart) -> None:
    for row in rows:
        point = chart.numbers(row, "x", "y")
        if point:
            marker = _MARKERS[chart.style_number(row) % len(_MARKERS)]
            axes.scatter(point[0], point[1], s=14, color=chart.colour(row), marker=marker, linewidths=0)
    axes.set(xlabel=chart.title("x"), ylabel=chart.title("y"))
    axes.grid(color=_LINE, linewidth=0.6)
    axes.set_axisbelow(True)
    _set_domain(axes, chart, "y")
    if chart.analysis.chart.get("diagonal"):
        axes.axline((0, 0), slope=1, color=_SOFT, linestyle=":", linewidth=1)
        _set_domain(axes, chart, "x")
        axes.set_aspect("equal")


def _draw_podium(axes: Axes, rows: Sequence[Row], chart: Chart) -> None:
    """Draw each team's value at its place of each case; a grey line joins the values of one case."""
    cases: dict[Any, list[tuple[float, float, str]]] = {}
    for row in rows:
        point = chart.numbers(row, "place", "y")
        if point:
            shift = (chart.series.index(row[chart.key("series")]) + 0.5) / len(chart.series) - 0.5
            mark = (point[0] + 0.8 * shift, point[1], chart.colour(row))
            cases.setdefault(row.get(chart.key("line")), []).append(mark)
    for marks in cases.values():
        xs, ys, colours = zip(*sorted(marks), strict=True)
        axes.plot(xs, ys, color=_SOFT, alpha=0.25, linewidth=0.5, zorder=1)
        axes.scatter(xs, ys, c=colours, s=7, linewidths=0, zorder=2)
    count = len(chart.series)
    for place in range(1, count):
        axes.axvline(place + 0.5, color=_LINE, linewidth=0.8, zorder=0)
    axes.set_xticks(range(1, count + 1))
    axes.set(xlabel=chart.title("place"), ylabel=chart.title("y"), xlim=(0.5, count + 0.5))
    _set_domain(axes, chart, "y")


def _draw_matrix(axes: Axes, rows: Sequence[Row], chart: Chart) -> None:
    across, down = chart.values("x", rows), chart.values("y", rows)
    if set(across) == set(down):
        across = down
    is_significance = chart.key("scale") == "significance"
    numbers = [number for row in chart.analysis.rows if (number := chart.number(row, "value")) is not None]
    low, high = min(numbers, default=0.0), max(numbers, default=1.0)
    for row in rows:
        column, line = across.index(row[chart.key("x")]), down.index(row[chart.key("y")])
        value = chart.number(row, "value")
        if value is None:
            axes.text(column, line, "\u00d7" if is_significance else "", color=_SOFT, ha="center", va="center")
            continue
        if is_significance:
            fill, ink = next((fill, ink) for limit, fill, ink, _ in _LEVELS if value < limit)
        else:
            fill, ink = _choose_cell_colours((value - low) / (high - low) if high > low else 0.0)
        axes.add_patch(Rectangle((column - 0.48, line - 0.48), 0.96, 0.96, color=fill, linewidth=0))
        axes.text(column, line, _format_cell(row, value, chart), color=ink, ha="center", va="center", fontsize=6)
    axes.set_xticks(
        range(len(across)), [_shorten(name) for name in across], rotation=90 if len(across) > _MAX_FLAT_LABELS else 0
    )
    axes.set_yticks(range(len(down)), [_shorten(name) for name in down])
    axes.set_xlim(-0.5, len(across) - 0.5)
    axes.set_ylim(len(down) - 0.5, -0.5)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set(xlabel=chart.title("x"), ylabel=chart.title("y"))


def _choose_cell_colours(fraction: float) -> tuple[Any, str]:
    """Return the fill of a cell and the colour of text on it."""
    fill = _SEQUENTIAL(fraction)
    brightness = 0.299 * fill[0] + 0.587 * fill[1] + 0.114 * fill[2]
    return fill, "black" if brightness > _MIN_BRIGHTNESS_FOR_BLACK else "white"


def _format_cell(row: Row, value: float, chart: Chart) -> str:
    """Return a cell's text as the page shows it."""
    text = row.get(chart.key("text"))
    if text is not None:
        return str(text) if isinstance(text, int) else f"{text:z.3f}"
    if chart.key("scale") == "significance":
        return "<.001" if value < 0.001 else "1" if value >= 0.9995 else f"{value:.3f}"[1:]
    return f"{value:z.0f}" if value == int(value) else f"{value:z.2f}"


def _make_legend(chart: Chart) -> list[Any]:
    """Return the legend's entries; teams that share the grey have one entry."""
    if chart.kind == "matrix":
        levels = _LEVELS if chart.key("scale") == "significance" else ()
        return [Patch(color=fill, label=text) for _, fill, _, text in levels]
    key = chart.key("series")
    if not key or key == chart.key("y"):
        return []
    handles: list[Any] = []
    for row in ({key: value} for value in chart.series):
        colour, number = chart.colour(row), chart.style_number(row)
        if key == "team" and colour == NEUTRAL:
            continue
        if chart.kind == "lines":
            handles.append(Line2D([], [], color=colour, linestyle=_DASHES[number % len(_DASHES)]))
        elif chart.kind in ("points", "podium"):
            marker = _MARKERS[number % len(_MARKERS)] if chart.kind == "points" else "o"
            handles.append(Line2D([], [], color=colour, marker=marker, linestyle=""))
        else:
            handles.append(Patch(color=colour))
        handles[-1].set_label(_shorten(row[key]))
    grey_count = len(chart.series) - len(handles)
    return [*handles, Patch(color=NEUTRAL, label=f"{grey_count} other teams")] if grey_count else handles


KINDS: Final[Mapping[str, Callable[[Axes, Sequence[Row], Chart], None]]] = {
    "bars": _draw_bars,
    "blobs": _draw_blobs,
    "boxes": _draw_boxes,
    "intervals": _draw_intervals,
    "lines": _draw_lines,
    "matrix": _draw_matrix,
    "podium": _draw_podium,
    "points": _draw_points,
}
