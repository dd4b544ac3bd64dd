"""Custom heads in training compete with ours, have faults of one line, and predict the same after saving."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from algorithm.heads.documents import NEVER, CustomHead, EnsembleHead, read_head
from algorithm.heads.head_hook import bind_code, list_custom_heads
from baseline.heads.cohort import HeadCohort, Outcomes
from baseline.heads.cross_validation import cross_validate
from baseline.heads.fitting import fit_target, fit_targets
from baseline.heads.models.custom import CustomHeads, with_custom_heads
from baseline.heads.models.risk import fit_cox
from baseline.heads.models.selection import RIDGE, Family
from baseline.heads.models.targets import make_targets, with_families
from baseline.heads.models.terms import use_unchanged
from contract.code import Code
from contract.editions import load_edition
from contract.errors import ModelPackageError
from tests.algorithm.heads.head_parts import score
from tests.baseline.heads.cohorts import make_head_cohort
from tests.baseline.heads.custom_code import write_custom_head
from tests.baseline.prepared import RFS

T_STAGE, _, RFS_DAYS = make_targets(load_edition("hecktor2026"))
REFERENCE = "my_code:Head"
FOREST = Path(__file__).parents[4] / "examples" / "survival_forest"


@pytest.fixture(autouse=True)
def remove_imported_code() -> Iterator[None]:
    """Remove the modules of custom code that a test has imported."""
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] in ("my_code", FOREST.name)]:
        del sys.modules[name]


def load_custom_heads(folder: Path) -> CustomHeads:
    code = Code.from_folders([folder])
    return CustomHeads(code, code.find_classes("Head"))


def make_symmetric_cohort(patients: int = 24, tilt: float = 0.0) -> HeadCohort:
    """Return patients of two centres with x from -1 to 1, who all relapse, and earlier with a larger |x|.

    With a `tilt` the relapse is also earlier with a larger x, so that a model that is linear in x has skill.
    """
    x = np.linspace(-1, 1, patients)
    rows = [{"x": float(value), "y": float(number % 5)} for number, value in enumerate(x)]
    return make_head_cohort(
        rows,
        Outcomes(np.ones(patients, np.int64), np.round(1000 - 900 * np.abs(x) + tilt * (1 - x))),
        ["A", "B"] * (patients // 2),
    )


def test_a_better_head_wins_and_is_a_comparator(tmp_path: Path) -> None:
    """Days fall with |x|, so that the custom head ranks all pairs of a fold correctly, unlike a Cox regression on x.

    The custom head has a C-index of almost 1 as a comparator (the scales of the folds differ a little). The ensemble holds
    both heads.
    """
    few = with_families(RFS, [Family("Cox", fit_cox, RIDGE, use_unchanged(("x",)))])
    target = with_custom_heads(few, load_custom_heads(write_custom_head(tmp_path)))
    record = cross_validate(target, make_symmetric_cohort(), "nested", 3)
    assert record.comparators[REFERENCE].c_index > 0.98
    assert {expert.name for fold in record.folds for expert in fold.experts} == {"Cox", REFERENCE}
    cox = cross_validate(few, make_symmetric_cohort(), "nested", 3)
    assert cox.c_index < 0.8 < record.c_index
    assert [fold.tried["Cox"] for fold in record.folds] == [fold.tried["Cox"] for fold in cox.folds]


@pytest.mark.slow
def test_a_saved_head_predicts_the_same(tmp_path: Path) -> None:
    """Heads are fitted in two processes, and read from JSON and a folder. The score is (|x| - mean) / sd by hand."""
    own, cohort = load_custom_heads(write_custom_head(tmp_path)), make_symmetric_cohort(tilt=500.0)
    target = with_custom_heads(with_families(RFS_DAYS, [Family("Cox", fit_cox, RIDGE, use_unchanged(("x",)))]), own)
    fitted = fit_targets([(target, cohort)], 0, jobs=2, save=partial(own.save_heads, folder=tmp_path / "heads"))
    record = fitted.heads["rfs"].model_dump(mode="json")
    head = bind_code(read_head(record["head"], "heads.json"), own.code, tmp_path / "heads")
    assert isinstance(head, EnsembleHead)
    assert [expert.name for expert in head.experts] == ["Cox", REFERENCE]
    assert head.survival is not None
    assert (tmp_path / "heads" / "rfs" / "my_code.Head" / "classes.json").is_file()
    size = np.abs(np.linspace(-1, 1, 24))
    (part,) = list_custom_heads(head)
    assert part.features == ("x", "y")
    assert score(part, {"x": 0.5}) == pytest.approx((0.5 - size.mean()) / size.std())
    rows = cohort.to_rows()
    assert head.scores(cohort) == pytest.approx([score(head, row) for row in rows])


def test_the_unit_of_a_score_does_not_matter(tmp_path: Path) -> None:
    """Scores are standardised by their mean and standard deviation, however small these are."""
    unit = 1e-12
    code = write_custom_head(tmp_path, ("            return -np.abs", f"            return {unit} * -np.abs"))
    (code / "__init__.py").write_text((code / "__init__.py").read_text().replace("return x\n", f"return {unit} * x\n"))
    own, cohort = load_custom_heads(code), make_symmetric_cohort()
    target = with_custom_heads(with_families(RFS, []), own)
    head = own.save_heads(fit_target(target, cohort, np.random.default_rng(0)).head, cohort, tmp_path / "heads")
    (part,) = list_custom_heads(head)
    assert part.sd == pytest.approx(unit * np.abs(np.linspace(-1, 1, 24)).std())


def test_classes_without_training_patients_never_win(tmp_path: Path) -> None:
    """Patients have only T1, T2 and T4; the head gets these three classes, and T3 has the lowest score."""
    stages = np.arange(30) % 3
    rows = [{"x": float(stage)} for stage in stages]
    names = tuple(map(str, T_STAGE.answer.classes))
    cohort = make_head_cohort(rows, Outcomes(np.array([0, 1, 3])[stages], classes=names))
    own = load_custom_heads(write_custom_head(tmp_path))
    families = with_custom_heads(T_STAGE, own).families
    assert families[-1].name == REFERENCE
    fitted = fit_target(with_families(T_STAGE, families[-1:]), cohort, np.random.default_rng(0))
    head = own.save_heads(fitted.head, cohort, tmp_path / "heads")
    assert isinstance(head, CustomHead)
    assert head.fitted == (names[0], names[1], names[3])
    scores = score(bind_code(head, own.code, tmp_path / "heads"), {"x": 1.0})
    assert scores == dict(zip(names, (-1.0, 0.0, NEVER, -1.0), strict=True))
    assert fitted.out_of_fold == 1.0


RETURN = "        return x\n"


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (RETURN, "        return x[:, None]\n", r"predict: found shape \(\d+, 1\), expected \(\d+,\)"),
        (RETURN, "        return x * np.nan\n", r"predict: found NaN, .* for \d+ of \d+ patients"),
        (RETURN, "        return ['late'] * len(x)\n", r"predict: found a list, expected numbers of shape"),
        (RETURN, "        return 1 / 0\n", r"predict: ZeroDivisionError: .*\(__init__.py, line \d+\)"),
        ('        if self.target.kind == "risk":\n', "        raise SystemExit(2)\n        if True:\n", "fit: SystemExit: 2"),
        ("    def predict(", "    def guess(", "no method predict, expected fit, predict, save, load"),
        ("self.classes = len", 'target.kind_ = "x"\n        self.classes = len', "__init__: FrozenInstanceError"),
        ("    def __init__", "    kinds = 'risk'\n    def __init__", "kinds 'risk', expected some of 'risk', 'class'"),
        ("        (folder", "        return\n        (folder", "save: found no file, expected files in the folder"),
        ("        head.classes =", "        head.gone =", "predict: AttributeError"),
        (RETURN, "        return x - x.mean()\n", "for a single patient it predicts other values"),
        ("        return head\n", "        raise OSError('no disk')\n", "load: OSError: no disk"),
    ],
)  # fmt: skip
def test_every_fault_is_one_line(tmp_path: Path, before: str, after: str, message: str) -> None:
    own, none = load_custom_heads(write_custom_head(tmp_path, (before, after))), with_families(RFS, [])
    save = partial(own.save_heads, folder=tmp_path / "heads")
    with pytest.raises(ModelPackageError, match=rf"^head my_code:Head.*{message}"):
        fit_targets([(with_custom_heads(none, own), make_symmetric_cohort())], 0, save=save)


def test_a_head_that_cannot_give_an_answer_is_not_a_candidate(tmp_path: Path) -> None:
    """Heads that answer only risks are not candidates for a class."""
    change = "    def __init__", "    kinds = ('risk',)\n    def __init__"
    own = load_custom_heads(write_custom_head(tmp_path, change))
    assert REFERENCE not in with_custom_heads(T_STAGE, own).comparators
    assert REFERENCE in with_custom_heads(RFS, own).comparators


def test_two_of_several_classes_share_one_score(tmp_path: Path) -> None:
    """Only T2 and T4 occur; |x| is 1 and 3, so that T4 scores (|x| - 2) / 1 and T2 scores 0. T1 and T3 never win."""
    stages = np.array([1, 3] * 8)
    cohort = make_head_cohort(
        [{"x": float(stage)} for stage in stages], Outcomes(stages, classes=tuple(map(str, T_STAGE.answer.classes)))
    )
    own = load_custom_heads(write_custom_head(tmp_path))
    fit = with_custom_heads(T_STAGE, own).families[-1].fit
    (fitted,) = fit(cohort, (), ({},), np.random.default_rng(0))
    head = bind_code(own.save_heads(fitted, cohort, tmp_path / "heads"), own.code, tmp_path / "heads")
    assert list(score(head, {"x": 2.5}).values()) == [NEVER, 0.0, NEVER, 0.5]
