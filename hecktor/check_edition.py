"""`hecktor check-edition FILE`: check an edition and print what each task measures and how it ranks."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from contract.options import Parser
from evaluation.editions.profile import TaskProfile, find_metrics, load_profile


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tasks of the edition; raise `HecktorError` at the first error, which names its place in the file."""
    parser = Parser(
        prog="hecktor check-edition",
        description="Check the JSON file of an edition, and print the metrics and the ranking of each task.",
    )
    parser.add_argument("edition", metavar="FILE", help="JSON file of a custom edition, or the name of an edition")
    profile = load_profile(parser.parse_args(argv).edition)
    edition = profile.edition
    lines = [f"{edition.title} ({edition.name}): no error found"]
    for task in profile.tasks.values():
        lines += _describe_task(task)
    without_scoring = [algorithm.name for algorithm in edition.algorithms if algorithm.name not in profile.tasks]
    if without_scoring:
        lines.append(f"not scored: {', '.join(without_scoring)}")
    used = {name for algorithm in edition.algorithms for name in (*algorithm.inputs, *algorithm.optional_inputs)}
    unused = [name for name in edition.inputs if name not in used]
    if unused:
        lines.append(
            f"warning: no task uses {', '.join(unused)}; list each in `inputs` or `optional_inputs` of an algorithm"
        )
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 0


def _describe_task(task: TaskProfile) -> list[str]:
    """Return lines with the answers of the task, its official ranking and the metrics that it may rank by."""
    answers = ", ".join(f"{answer.answer.name} ({answer.answer.kind})" for answer in task.answers.values())
    inputs = ", ".join(task.algorithm.inputs)
    if task.algorithm.optional_inputs:
        inputs += f"; optional: {', '.join(task.algorithm.optional_inputs)}"
    lines = [
        f"task {task.algorithm.name}",
        f"  inputs: {inputs}",
        f"  answers: {answers}",
        f"  official ranking: {task.ranking.official}, by {', '.join(task.ranking.official_metrics)}",
    ]
    for name, metric in task.metrics.items():
        if metric.terms:
            terms = " + ".join(f"{weight:g} {term}" for term, weight in metric.terms.items())
            lines.append(f"  {name} = {terms}")
    measured = find_metrics(task.answers, task.algorithm.name)
    usable = [name for name, metric in measured.items() if metric.metric.can_rank]
    return [*lines, f"  metrics that can rank under its rules: {', '.join(usable)}"]
