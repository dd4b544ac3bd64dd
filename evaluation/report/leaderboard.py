"""The leaderboard of a task as a table, with a summary in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from evaluation.analyses.sources import DECIDING
from evaluation.analyses.tables import scheme_title
from evaluation.metrics.rules import SIGNED_RANK
from evaluation.page.html import Cell, Row, choice, paragraph, swatch, table, value_cell
from evaluation.results.documents import FIGURES, figure_of

SIGNIFICANT: Final = 0.05
# One-sided; an interval of 95% leaves out 0 up to the same p.
ALPHA: Final = 0.025
_MOST_GROUPS: Final = 3
_NO_ORDER: Final = "No order claimed with ranks"
_CAPTION: Final = "Leaderboard with 95% intervals"
_BETTER: Final = "; better than: number of teams with p < 0.05 after Holm's correction"
_OUTSIDE: Final = "out of competition"
_UNCHECKED: Final = "(values not checked: no rows)"
Board = Mapping[str, Any]


def leaderboard(board: Board, colours: Mapping[str, str]) -> str:
    """The summary in words and the table."""
    groups = inseparable_groups(board)
    return f"{paragraph(in_words(board, groups), 'words')}{_table(board, colours, groups)}"


def in_words(board: Board, groups: Sequence[Sequence[str]]) -> str:
    """Name the leader, the stability of the order, and the teams among which no order is claimed."""
    teams = [str(entry["team"]) for entry in board["teams"]]
    if not teams:
        return "No team is ranked."
    sentences = [_leader_sentence(board), _tau_sentence(board)]
    beaten = _beaten(board)
    if beaten:
        metrics = [_within(board["metrics"][metric]) for metric in deciding_metrics(board)]
        sentences.append(_better_sentence(teams[0], beaten[teams[0]], metrics, len(teams)))
    sentences.append(_order_sentence(groups, board) if groups else "")
    return " ".join(filter(None, sentences))


def _leader_sentence(board: Board) -> str:
    first = [entry for entry in board["teams"] if entry["rank"] == board["teams"][0]["rank"]]
    names = [str(entry["team"]) for entry in first]
    metric = next(iter(deciding_metrics(board)), None)
    if len(first) > 1:
        return f"{', '.join(names[:-1])} and {names[-1]} share the first place."
    figures = {} if metric is None or len(deciding_metrics(board)) > 1 else first[0]["metrics"][metric]
    found = figures.get("value")
    value = "" if found is None else f" with a {_within(board['metrics'][metric])} of {found:.3f}"
    stable = _stability(board).get("teams", {})
    if names[0] not in stable:
        return f"{names[0]} leads{value}."
    bootstraps = board["stability"]["bootstraps"]
    share = stable[names[0]]["times_at_rank"].get("1", 0) / bootstraps
    return f"{names[0]} leads{value} and is first in {share:.0%} of {bootstraps} rankings of resampled patients."


def _stability(board: Board) -> Mapping[str, Any]:
    """The bootstrap rankings by the official scheme; empty without any."""
    stable: Mapping[str, Any] | None = (board.get("stability") or {}).get("rankings", {}).get(board["official"])
    return stable or {}


def _better_sentence(leader: str, beaten: Sequence[int], metrics: Sequence[str], teams: int) -> str:
    others = f"the {teams - 1} other teams" if teams > 2 else "the one other team"
    if not any(beaten):
        return f"{leader} is not significantly better than {'any of ' if teams > 2 else ''}{others}."
    counts = [f"{count or 'none'} in {metric}" for count, metric in zip(beaten, metrics, strict=True)]
    return f"Of {others}, {leader} is significantly better than {', '.join(counts)}."


def _within(title: str) -> str:
    """The title of a metric inside a sentence: balanced accuracy, but C-index and GTVp."""
    return title[:1].lower() + title[1:] if title[1:2].islower() else title


def _tau_sentence(board: Board) -> str:
    tau = _stability(board).get("kendall_tau", {})
    if tau.get("mean") is None:
        return ""
    return (
        f"Kendall's tau between these rankings and the order below is {tau['mean']:.2f} on average "
        f"(95% interval {tau['ci95_low']:.2f} to {tau['ci95_high']:.2f}; 1 means the same order)."
    )


def deciding_metrics(board: Board) -> list[str]:
    """The metrics that decide the official ranking; of a leaderboard whose edition is unknown, all metrics."""
    if board.get(DECIDING):
        return list(board[DECIDING])
    return [board["official"]] if board["official"] in board["metrics"] else list(board["metrics"])


def inseparable_groups(board: Board) -> list[list[str]]:
    """Neighbours in the official ranking whose differences all have intervals with 0, in every deciding metric.

    Each group is as long as possible, so that groups may overlap. Empty without intervals of differences.
    """
    teams = [str(entry["team"]) for entry in board["teams"]]
    unclear = _unclear_pairs(board)
    groups: list[list[str]] = []
    end = 0
    for start in range(len(teams)):
        stop = start + 1
        while stop < len(teams) and all(frozenset((one, teams[stop])) in unclear for one in teams[start:stop]):
            stop += 1
        if stop - start > 1 and stop > end:
            groups.append(teams[start:stop])
            end = stop
    return groups


def _unclear_pairs(board: Board) -> set[frozenset[str]]:
    """Pairs of teams whose differences have intervals that include 0, in every deciding metric."""
    of_metrics = []
    for metric in deciding_metrics(board):
        pairs = _pairs(board, metric)
        if _is_by_ranks(board, metric):  # without intervals
            better = {frozenset((pair["team"], pair["than"])) for pair in pairs if pair["p"] <= ALPHA}
            of_metrics.append({frozenset((pair["team"], pair["than"])) for pair in pairs} - better)
        else:
            of_metrics.append({frozenset((pair["team"], pair["than"])) for pair in pairs if _includes_zero(pair)})
    return set.intersection(*of_metrics) if of_metrics else set()


def _is_by_ranks(board: Board, metric: str) -> bool:
    return bool((board.get("comparisons") or {}).get(metric, {}).get("test") == SIGNED_RANK)


def _includes_zero(pair: Mapping[str, Any]) -> bool:
    if pair.get("without_p"):
        return True
    low, high = pair.get("ci95_low"), pair.get("ci95_high")
    return low is not None and high is not None and low <= 0 <= high


def _pairs(board: Board, metric: str) -> Sequence[Mapping[str, Any]]:
    pairs: Sequence[Mapping[str, Any]] = (board.get("comparisons") or {}).get(metric, {}).get("pairs", ())
    return pairs


def _order_sentence(groups: Sequence[Sequence[str]], board: Board) -> str:
    shown = [f"{', '.join(group[:-1])} and {group[-1]}" for group in groups[:_MOST_GROUPS]]
    more = len(groups) - len(shown)
    rest = f"; and in {more} more group{'s' * (more > 1)} (column “{_NO_ORDER}”)" if more else ""
    deciding = deciding_metrics(board)
    where = " in every metric that decides the ranking" if len(deciding) > 1 else ""
    by_ranks = [_is_by_ranks(board, metric) for metric in deciding]
    reasons = [] if all(by_ranks) else ["the 95% intervals of their differences include 0"]
    reasons += ["Wilcoxon's test finds neither better with p <= 0.025"] if any(by_ranks) else []
    return f"No order is claimed among {'; among '.join(shown)}{rest}: {', or '.join(reasons)}{where}."


def _table(board: Board, colours: Mapping[str, str], groups: Sequence[Sequence[str]]) -> str:
    schemes = board["teams"][0]["rankings"] if board["teams"] else ()
    others = [name for name in schemes if name != board["official"]]
    beaten, metrics = _beaten(board), list(board["metrics"])
    described = board.get("methods", {})
    columns = list(dict.fromkeys(column for of_team in described.values() for column in of_team))
    stable = _stability(board).get("teams", {})
    heads = ["Rank", "Team", *board["metrics"].values(), *columns]
    several = ", by metric" if len(deciding_metrics(board)) > 1 else ""
    heads += [f"Better than (of {len(board['teams']) - 1}{several})"] if beaten else []
    heads += [_NO_ORDER] if groups else []
    heads += ["Rank, 95% interval"] if stable else []
    heads += [f"Rank by {scheme_title(name, board)}" for name in others]
    rows = []
    for entry in board["teams"]:
        team = str(entry["team"])
        remark = _UNCHECKED if entry.get("without_rows") else ""
        cells = [Cell(f"{entry['rank']:g}", entry["rank"]), _team(team, colours, remark)]
        cells += [_metric(entry["metrics"][name]) for name in metrics]
        cells += _descriptors(described.get(team, {}), columns)
        cells += [Cell(" · ".join(map(str, beaten[team])), sum(beaten[team]))] if beaten else []
        cells += [_without_order(team, board, groups)] if groups else []
        cells += [_interval(stable.get(team))] if stable else []
        cells += [Cell(f"{entry['rankings'][name]['rank']:g}", entry["rankings"][name]["rank"]) for name in others]
        rows.append(Row(cells, {"team": team}))
    for entry in reversed(board.get("unranked_entries", ())):
        descriptors = _descriptors(described.get(entry["team"], {}), columns)
        rows.insert(entry["place"], _beside(entry, metrics, descriptors, len(heads), colours))
    rows += [_unranked(entry, len(heads), colours) for entry in board["unranked"]]
    falling = [str(title) for name, title in board["metrics"].items() if _is_best_high(board, name)]
    falling += [head for head in heads if head.startswith("Better than")]
    caption = f"{_CAPTION}{_BETTER if beaten else ''}"
    return table(
        caption, heads, rows, header_column=1, best_last=falling, css_class="board searched" if columns else "board"
    )


def _is_best_high(board: Board, metric: str) -> bool:
    """Whether larger values of a metric have better ranks, inferred from the teams' values."""
    known = [entry["metrics"][metric] for entry in board["teams"]]
    known = sorted((one for one in known if one.get("value") is not None), key=lambda one: float(one["rank"]))
    return not known or bool(known[0]["value"] >= known[-1]["value"])


def _team(team: str, colours: Mapping[str, str], remark: str) -> Cell:
    note = f' <span class="remark">{escape(remark)}</span>' if remark else ""
    return Cell(f"{swatch(colours.get(team, 'transparent'))}{choice('team', team)}{note}")


def _metric(figures: Mapping[str, Any]) -> Cell:
    return value_cell(*(figure_of(figures, part) for part in FIGURES), best=figures.get("rank") == 1)


def _beaten(board: Board) -> dict[str, list[int]]:
    """How many teams each one is significantly better than, by deciding metric; empty without comparisons."""
    if not board.get("comparisons") or len(board["teams"]) < 2:
        return {}
    beaten: dict[str, list[int]] = {str(entry["team"]): [] for entry in board["teams"]}
    for metric in deciding_metrics(board):
        tested = [pair for pair in _pairs(board, metric) if pair.get("p_holm") is not None]
        better = [pair["team"] for pair in tested if pair["p_holm"] < SIGNIFICANT]
        for team, counts in beaten.items():
            counts.append(better.count(team))
    return beaten


def _without_order(team: str, board: Board, groups: Sequence[Sequence[str]]) -> Cell:
    """The ranks among which no order is claimed, as `2 to 5`."""
    mine = {one for group in groups if team in group for one in group}
    ranks = [entry["rank"] for entry in board["teams"] if entry["team"] in mine]
    if not ranks:
        return Cell("-")
    low, high = min(ranks), max(ranks)
    return Cell(f"{low:g} to {high:g}" if low < high else f"{low:g}", low + high / 1000)


def _interval(ranks: Mapping[str, Any] | None) -> Cell:
    if ranks is None:
        return Cell("-")
    return Cell(f"{ranks['ci95_low']:g} to {ranks['ci95_high']:g}", ranks["ci95_low"] + ranks["ci95_high"] / 1000)


def _descriptors(of_team: Mapping[str, str], columns: Sequence[str]) -> list[Cell]:
    return [Cell(escape(of_team.get(column, "")) or "-") for column in columns]


def _beside(
    entry: Mapping[str, Any],
    metrics: Sequence[str],
    descriptors: Sequence[Cell],
    width: int,
    colours: Mapping[str, str],
) -> Row:
    remark = f"{_OUTSIDE}{': ' if entry.get('reason') else ''}{entry.get('reason') or ''}"
    team = str(entry["team"])
    cells = [Cell("-"), _team(team, colours, f"({remark})")]
    cells += [_metric({**entry["metrics"][name], "rank": None}) for name in metrics if name in entry["metrics"]]
    cells += descriptors
    cells += [Cell("", span=width - len(cells))] if len(cells) < width else []
    return Row(cells, {"team": team}, "outside")


def _unranked(entry: Mapping[str, Any], width: int, colours: Mapping[str, str]) -> Row:
    team = str(entry["team"])
    reason = Cell(escape(f"not ranked: no {', '.join(entry['without'])}"), span=width - 2)
    return Row([Cell("-"), _team(team, colours, ""), reason], {"team": team})
