"""Draw each analysis with a chart as an SVG and a PDF file, with matplotlib, as the page draws it."""

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
# SVG files contain text as text, a dollar sign in a team's name does not begin a formula, and PDF files embed TrueType
# fonts, as journals require.
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
# Number of wide characters of 8 points in an inch.
_CHARACTERS_PER_INCH: Final = 14
_MAX_LABEL_LENGTH: Final = 32
_MAX_FLAT_LABELS: Final = 3
_LINE_INCHES: Final = 0.22
_MIN_BRIGHTNESS_FOR_BLACK: Final = 0.5
# Areas in square points; the smallest bubble stays visible.
_MIN_BUBBLE_AREA: Final = 1.0
_MAX_BUBBLE_AREA: Final = 120.0
# Space between the outer ranks and the ends of the axis, in ranks.
_BUBBLE_MARGIN: Final = 0.6


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
        """Return the values of the column that separates lines, bars or points, or [None] if it does not exist."""
        return self.list_categories("series") or [None]

    def get_column(self, role: str) -> str:
        """Return the key of the column with a role in the chart. It is empty if the chart has no such column."""
        return str(self.analysis.chart.get(role, ""))

    def get_title(self, role: str) -> str:
        """Return the heading of the column with a role in the chart."""
        return self.analysis.columns.get(self.get_column(role), "")

    def list_categories(self, role: str, rows: Sequence[Row] | None = None) -> list[Any]:
        """List the different values of the column with a role, in the order of the rows."""
        categories = dict.fromkeys(
            row.get(self.get_column(role)) for row in (self.analysis.rows if rows is None else rows)
        )
        return [category for category in categories if category is not None]

    def get_number(self, row: Row, role: str) -> float | None:
        """Return the finite number of a row in the column with a role, or None if there is no such number."""
        value = row.get(self.get_column(role))
        if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
            return None
        return float(value)

    def get_numbers(self, row: Row, *roles: str) -> list[float]:
        """Return the numbers of a row in the columns with these roles. The list is empty if one of them is absent."""
        numbers = [self.get_number(row, role) for role in roles]
        present = [number for number in numbers if number is not None]
        return present if len(present) == len(numbers) else []

    def choose_colour(self, row: Row) -> str:
        """Return the colour of the row's series or, if teams are the series, of its team."""
        key = self.get_column("series")
        if key and key != "team" and len(self.series) > 1:
            return _SERIES_COLOURS[self.series.index(row.get(key)) % len(_SERIES_COLOURS)]
        team = row.get("team")
        return self.colours.get(str(team), NEUTRAL) if team is not None else _BAR

    def choose_style(self, row: Row) -> int:
        """Return the index of the row's dash and marker: the index of its series or, for a team, of its colour."""
        if self.get_column("series") != "team":
            return max(0, self.series.index(row.get(self.get_column("series"))) if self.get_column("series") else 0)
        colour = self.choose_colour(row)
        return TEAM_COLOURS.index(colour) if colour in TEAM_COLOURS else 0


def write_figures(folder: Path, by_task: Mapping[str, Sequence[Analysis]], colours: Mapping[str, str]) -> list[Path]:
    """Write `<folder>/<task>/<name>.svg` and `.pdf` for each analysis with a chart, and return the paths."""
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
        # An SVG contains a name as text, even if some of its characters are not in the font of the PDF.
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
    facets = chart.list_categories("facet") or [None]
    handles = _make_legend(chart)
    size = _choose_panel_size(chart)
    columns = min(len(facets), max(1, int(_PAGE_INCHES / size.full_width)))
    lines = math.ceil(len(facets) / columns)
    bottom = 0.22 * math.ceil(len(handles) / _LEGEND_COLUMNS) + 0.05
    width, height = max(_MIN_INCHES, columns * size.full_width), bottom + lines * size.full_height + 0.25
    figure = Figure(figsize=(width, height))
    figure.text(0.1 / width, 1 - 0.2 / height, chart.analysis.title, fontsize=9)
    for index, facet in enumerate(facets):
        line, column = divmod(index, columns)
        left = column * size.full_width + size.left
        low = bottom + (lines - 1 - line) * size.full_height + size.bottom
        axes = figure.add_axes((left / width, low / height, size.width / width, size.height / height))
        rows = [row for row in chart.analysis.rows if facet is None or row.get(chart.get_column("facet")) == facet]
        draw_panel(axes, rows, chart)
        if facet is not None:
            axes.set_title(_shorten(facet, int(size.full_width * _CHARACTERS_PER_INCH)), loc="left")
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
    has_facets = bool(chart.get_column("facet"))
    if chart.kind == "matrix":
        across, down = chart.list_categories("x"), chart.list_categories("y")
        bottom = 0.35 + (_label_inches(across) if len(across) > _MAX_FLAT_LABELS else 0.15)
        return PanelSize(max(0.3 * len(across), 1.2), 0.26 * len(down), 0.2 + _label_inches(down), bottom)
    if chart.kind in ("lines", "points", "podium"):
        return PanelSize(2.3, 1.9, 0.6, 0.45) if has_facets else PanelSize(5.4, 3.4, 0.6, 0.45)
    if chart.kind == "boxes":
        names = chart.list_categories("category")
        if chart.get_column("orientation") == "vertical":
            return PanelSize(max(3.0, 0.14 * len(names)), 2.4, 0.5, 0.1 + _label_inches(names))
    else:
        names = chart.list_categories("y")
    bars = len(chart.series) if chart.kind == "bars" else 1
    height = len(names) * max(_LINE_INCHES, 0.1 * bars + 0.06)
    return PanelSize(2.2 if has_facets else 4.5, max(0.4, height), _label_inches(names), 0.45)


def _label_inches(names: Sequence[Any]) -> float:
    """Return the space that the longest name needs."""
    return 0.15 + max((len(_shorten(name)) for name in names), default=0) / _CHARACTERS_PER_INCH


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
    """Draw the value of each row as a point on the line of its category, and its interval as a bar."""
    categories = chart.list_categories("y")
    shown: list[float] = []
    for row in rows:
        y = categories.index(row[chart.get_column("y")])
        interval = chart.get_numbers(row, "low", "high")
        value = chart.get_numbers(row, "x")
        if interval:
            axes.plot(interval, [y, y], color=chart.choose_colour(row), linewidth=1.5)
        if value:
            axes.plot(value, [y], "o", color=chart.choose_colour(row), markersize=4)
        shown += interval + value
    _label_categories(axes, categories)
    axes.set_xlabel(chart.get_title("x"))
    domain = chart.analysis.chart.get("domain")
    # Values that fill less than half of the domain get a narrower axis, as on the page.
    if domain and shown and max(shown) - min(shown) >= (domain[1] - domain[0]) / 2:
        _set_domain(axes, chart, "x")


def _draw_bars(axes: Axes, rows: Sequence[Row], chart: Chart) -> None:
    """Draw a bar for each row. The bars of a category are one below the other on the category's line."""
    categories, series = chart.list_categories("y"), chart.series
    height = 0.8 / len(series)
    for row in rows:
        value = chart.get_number(row, "x")
        if value is not None:
            index = series.index(row.get(chart.get_column("series"))) if chart.get_column("series") else 0
            middle = categories.index(row[chart.get_column("y")]) - 0.4 + height * (index + 0.5)
            axes.barh(middle, value, height=height, color=chart.choose_colour(row))
    axes.axvline(0, color=_SOFT, linewidth=0.8)
    _label_categories(axes, categories)
    axes.set_xlabel(chart.get_title("x"))
    _set_domain(axes, chart, "x")


def _draw_bubbles(axes: Axes, rows: Sequence[Row], chart: Chart) -> None:
    """Draw a bubble for each row at its rank, whose area is the row's fraction, and the interval of the ranks."""
    categories = chart.list_categories("y")
    for row in rows:
        y = categories.index(row[chart.get_column("y")])
        interval = chart.get_numbers(row, "low", "high") if chart.get_column("low") else []
        if interval:
            axes.plot(interval, [y, y], color=_SOFT, linewidth=0.8, zorder=1)
        bubble = chart.get_numbers(row, "x", "size")
        if bubble:
            rank, fraction = bubble
            area = max(_MIN_BUBBLE_AREA, _MAX_BUBBLE_AREA * fraction)
            axes.scatter(rank, y, s=area, color=chart.choose_colour(row), zorder=2)
    _label_categories(axes, categories)
    axes.set_xlabel(chart.get_title("x"))
    max_rank = max([chart.get_number(row, "x") or 1 for row in chart.analysis.rows])
    axes.set_xlim(1 - _BUBBLE_MARGIN, max_rank + _BUBBLE_MARGIN)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_boxes(axes: Axes, rows: Sequence[Row], chart: Chart) -> None:
    """Draw a box with whiskers, median, mean and outliers for each row, in the middle of its category."""
    is_upright = chart.analysis.chart.get("orientation") == "vertical"
    categories = chart.list_categories("category")

    def draw(marker: str, values: Sequence[float], middle: float, **options: Any) -> None:
        middles = [middle] * len(values)
        points = (middles, values) if is_upright else (values, middles)
        axes.plot(*points, marker, **options)

    for row in rows:
        middle = categories.index(row[chart.get_column("category")])
        colour = chart.choose_colour(row)
        whiskers = chart.get_numbers(row, "low", "high")
        quartiles = chart.get_numbers(row, "q1", "q3")
        if whiskers:
            draw("-", whiskers, middle, color=colour, linewidth=1)
        outliers = [value for value in row.get(chart.get_column("outliers")) or [] if value is not None]
        draw("o", outliers, middle, color=colour, markersize=2)
        if quartiles:
            low, size = quartiles[0], quartiles[1] - quartiles[0]
            corner, sides = ((middle - 0.3, low), (0.6, size)) if is_upright else ((low, middle - 0.3), (size, 0.6))
            axes.add_patch(Rectangle(corner, *sides, color=colour, linewidth=0, zorder=3))
        for median in chart.get_numbers(row, "median"):
            draw_line = axes.hlines if is_upright else axes.vlines
            draw_line(median, middle - 0.3, middle + 0.3, color="white", linewidth=1.2, zorder=4)
        draw(
            "o", chart.get_numbers(row, "mean"), middle, color="white", markeredgecolor="black", markersize=3, zorder=5
        )
        for value in chart.get_numbers(row, "mark") if chart.get_column("mark") else []:
            draw("^", [value], middle, color=colour, markeredgecolor="black", markersize=5, zorder=5)
            point = (middle, value) if is_upright else (value, middle)
            axes.annotate(
                _shorten(row[chart.get_column("name")]), point, (0, 5), textcoords="offset points", ha="center"
            )
    if is_upright:
        axes.set_xticks(range(len(categories)), [_shorten(name) for name in categories], rotation=90)
        axes.set_xlim(-0.5, len(categories) - 0.5)
        axes.grid(axis="y", color=_LINE, linewidth=0.6)
        axes.set_axisbelow(True)
    else:
        _label_categories(axes, categories)
    _set_domain(axes, chart, "y" if is_upright else "x")


def _draw_lines(axes: Axes, rows: Sequence[Row], chart: Chart) -> None:
    """Draw a line or a step curve for each series, with a band if the chart has intervals."""
    is_step = bool(chart.analysis.chart.get("step"))
    for series in chart.series:
        series_rows = [row for row in rows if series is None or row.get(chart.get_column("series")) == series]
        known_rows = [row for row in series_rows if chart.get_numbers(row, "x", "y")]
        if not known_rows:
            continue
        colour = chart.choose_colour(known_rows[0])
        style_index = chart.choose_style(known_rows[0])
        marker = "" if is_step else _MARKERS[style_index % len(_MARKERS)]
        xs, ys = zip(*(chart.get_numbers(row, "x", "y") for row in known_rows), strict=True)
        axes.plot(
            xs,
            ys,
            color=colour,
            linewidth=1.2,
            linestyle=_DASHES[style_index % len(_DASHES)],
            marker=marker,
            markersize=3.5,
            drawstyle="steps-post" if is_step else "default",
        )
        band_rows = known_rows if chart.get_column("low") else []
        band = [point for row in band_rows if (point := chart.get_numbers(row, "x", "low", "high"))]
        if band:
            xs, lows, highs = zip(*band, strict=True)
            axes.fill_between(xs, lows, highs, color=colour, alpha=0.14, linewidth=0, step="post" if is_step else None)
    axes.set(xlabel=chart.get_title("x"), ylabel=chart.get_title("y"))
    axes.grid(color=_LINE, linewidth=0.6)
    _set_domain(axes, chart, "y")


def _draw_points(axes: Axes, rows: Sequence[Row], chart: Chart) -> None:
    """Draw a point for each row, and the diagonal if the chart asks for it."""
    for row in rows:
        point = chart.get_numbers(row, "x", "y")
        if point:
            marker = _MARKERS[chart.choose_style(row) % len(_MARKERS)]
            axes.scatter(point[0], point[1], s=14, color=chart.choose_colour(row), marker=marker, linewidths=0)
    axes.set(xlabel=chart.get_title("x"), ylabel=chart.get_title("y"))
    axes.grid(color=_LINE, linewidth=0.6)
    axes.set_axisbelow(True)
    _set_domain(axes, chart, "y")
    if chart.analysis.chart.get("diagonal"):
        axes.axline((0, 0), slope=1, color=_SOFT, linestyle=":", linewidth=1)
        _set_domain(axes, chart, "x")
        axes.set_aspect("equal")


def _draw_podium(axes: Axes, rows: Sequence[Row], chart: Chart) -> None:
    """Draw each team's value of each case at its rank, and join the values of a case by a grey line."""
    cases: dict[Any, list[tuple[float, float, str]]] = {}
    for row in rows:
        point = chart.get_numbers(row, "place", "y")
        if point:
            rank, value = point
            shift = (chart.series.index(row[chart.get_column("series")]) + 0.5) / len(chart.series) - 0.5
            mark = (rank + 0.8 * shift, value, chart.choose_colour(row))
            cases.setdefault(row.get(chart.get_column("line")), []).append(mark)
    for marks in cases.values():
        xs, ys, colours = zip(*sorted(marks), strict=True)
        axes.plot(xs, ys, color=_SOFT, alpha=0.25, linewidth=0.5, zorder=1)
        axes.scatter(xs, ys, c=colours, s=7, linewidths=0, zorder=2)
    count = len(chart.series)
    for rank in range(1, count):
        axes.axvline(rank + 0.5, color=_LINE, linewidth=0.8, zorder=0)
    axes.set_xticks(range(1, count + 1))
    axes.set(xlabel=chart.get_title("place"), ylabel=chart.get_title("y"), xlim=(0.5, count + 0.5))
    _set_domain(axes, chart, "y")


def _draw_matrix(axes: Axes, rows: Sequence[Row], chart: Chart) -> None:
    """Draw a cell with its number for each row. Its colour shows the level of significance or the size of the value."""
    across, down = chart.list_categories("x", rows), chart.list_categories("y", rows)
    if set(across) == set(down):
        across = down
    is_significance = chart.get_column("scale") == "significance"
    numbers = [number for row in chart.analysis.rows if (number := chart.get_number(row, "value")) is not None]
    low, high = min(numbers, default=0.0), max(numbers, default=1.0)
    for row in rows:
        column, line = across.index(row[chart.get_column("x")]), down.index(row[chart.get_column("y")])
        value = chart.get_number(row, "value")
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
    axes.set(xlabel=chart.get_title("x"), ylabel=chart.get_title("y"))


def _choose_cell_colours(fraction: float) -> tuple[Any, str]:
    """Return the fill of a cell and the colour of text on it."""
    fill = _SEQUENTIAL(fraction)
    brightness = 0.299 * fill[0] + 0.587 * fill[1] + 0.114 * fill[2]
    return fill, "black" if brightness > _MIN_BRIGHTNESS_FOR_BLACK else "white"


def _format_cell(row: Row, value: float, chart: Chart) -> str:
    """Return a cell's text as the page shows it."""
    text = row.get(chart.get_column("text"))
    if text is not None:
        return str(text) if isinstance(text, int) else f"{text:z.3f}"
    if chart.get_column("scale") == "significance":
        return "<.001" if value < 0.001 else "1" if value >= 0.9995 else f"{value:.3f}"[1:]
    return f"{value:z.0f}" if value == int(value) else f"{value:z.2f}"


def _make_legend(chart: Chart) -> list[Any]:
    """Make the legend's entries, with one entry for all teams that share the grey."""
    if chart.kind == "matrix":
        levels = _LEVELS if chart.get_column("scale") == "significance" else ()
        return [Patch(color=fill, label=text) for _, fill, _, text in levels]
    key = chart.get_column("series")
    if not key or key == chart.get_column("y"):
        return []
    handles: list[Any] = []
    for row in ({key: value} for value in chart.series):
        colour = chart.choose_colour(row)
        style_index = chart.choose_style(row)
        if key == "team" and colour == NEUTRAL:
            continue
        if chart.kind == "lines":
            handles.append(Line2D([], [], color=colour, linestyle=_DASHES[style_index % len(_DASHES)]))
        elif chart.kind in ("points", "podium"):
            marker = _MARKERS[style_index % len(_MARKERS)] if chart.kind == "points" else "o"
            handles.append(Line2D([], [], color=colour, marker=marker, linestyle=""))
        else:
            handles.append(Patch(color=colour))
        handles[-1].set_label(_shorten(row[key]))
    grey_count = len(chart.series) - len(handles)
    return [*handles, Patch(color=NEUTRAL, label=f"{grey_count} other teams")] if grey_count else handles


KINDS: Final[Mapping[str, Callable[[Axes, Sequence[Row], Chart], None]]] = {
    "bars": _draw_bars,
    "blobs": _draw_bubbles,
    "boxes": _draw_boxes,
    "intervals": _draw_intervals,
    "lines": _draw_lines,
    "matrix": _draw_matrix,
    "podium": _draw_podium,
    "points": _draw_points,
}
