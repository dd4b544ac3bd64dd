"""Evaluation profile for the mask alone, of an edition whose task has more answers."""

from __future__ import annotations

from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from baseline.heads.metrics import mask_metric_titles, mask_task
from contract.editions import Edition, known_editions
from contract.files import parse_json, read_json, write_json
from evaluation.editions.profile import load_profile

# Keys of a declared algorithm that name none of its answers.
_ALGORITHM_KEYS: Final = ("name", "title", "inputs", "optional_inputs", "time_limit_s")


def mask_profile(edition: Edition, folder: Path) -> str:
    """Name or path of a profile that scores masks as the edition does.

    Where the edition's task has other answers, a declaration and a profile without them are written into `folder`.
    """
    task = load_profile(edition.evaluation_profile).task(mask_task(edition))
    mask = task.algorithm.mask
    if mask is None or not task.has_several_answers:
        return edition.evaluation_profile
    declaration = _declaration(edition)
    (algorithm,) = (one for one in declaration["algorithms"] if one["name"] == task.algorithm.name)
    answers = [answer for answer in algorithm["answers"] if answer["name"] == mask.name]
    name = f"{edition.name}-masks"
    plain = {key: value for key, value in algorithm.items() if key in _ALGORITHM_KEYS}
    declaration |= {"name": name, "algorithms": [plain | {"answers": answers}]}
    profile, titles = task.answers[mask.name], mask_metric_titles(edition)
    metrics = {
        metric: {"title": title, "higher_is_better": task.metrics[profile.prefix + metric].higher_is_better}
        for metric, title in titles.items()
    }
    first = next(iter(titles))
    content = {
        "answers": {mask.name: {"rules": asdict(profile.rules)}},
        "metrics": metrics,
        "ranking": {"official": first, "ties": "min", "schemes": {first: first}},
    }
    top = {"format": 2, "name": name, "title": edition.title, "declaration": "mask_declaration.json"}
    write_json(folder / "mask_declaration.json", declaration)
    write_json(folder / "mask_profile.json", top | {"tasks": {task.algorithm.name: content}})
    return str(folder / "mask_profile.json")


def _declaration(edition: Edition) -> Any:
    if edition.source not in known_editions():
        return read_json(Path(edition.source))
    source = f"{edition.source}.json"
    return parse_json(files("contract.editions").joinpath(source).read_text(encoding="utf-8"), source)
