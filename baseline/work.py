"""The working directory of a training: what lies where, so that each step finds what the earlier ones left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from baseline.cache import key_of
from baseline.network.nnunet import Folders
from baseline.network.out_of_fold_files import OutOfFold
from baseline.network.plans import Plan
from baseline.release.cases import ReleaseCase, case_of
from baseline.release.splits import Splits, read_splits
from contract.errors import HecktorError
from contract.files import read_json, write_json


@dataclass(frozen=True)
class Work:
    """A working directory; a file is written once all that it stands for is there."""

    root: Path

    @property
    def folders(self) -> Folders:
        """nnU-Net's folders."""
        return Folders(self.root / "nnunet")

    @property
    def checks(self) -> Path:
        """What was found in each patient's images."""
        return self.root / "checks"

    @property
    def cases_json(self) -> Path:
        """The prepared patients."""
        return self.root / "cases.json"

    @property
    def splits_json(self) -> Path:
        """Who is held out when."""
        return self.root / "splits.json"

    @property
    def prepare_json(self) -> Path:
        """What `prepare` did."""
        return self.root / "prepare.json"

    @property
    def plan_json(self) -> Path:
        """The plan's options and what it was made from."""
        return self.root / "plan.json"

    @property
    def training(self) -> Path:
        """The page of all networks in training, and what each has left for it."""
        return self.root / "training"

    @property
    def features_json(self) -> Path:
        """Features from out-of-fold masks."""
        return self.root / "features.json"

    @property
    def heads_json(self) -> Path:
        """The fitted heads."""
        return self.root / "heads.json"

    @property
    def cross_validation_json(self) -> Path:
        """What the heads may expect of unseen patients."""
        return self.root / "cross_validation.json"

    @property
    def out_of_fold(self) -> OutOfFold:
        """Each patient's mask and features from the fold that never saw it."""
        return OutOfFold(self.root / "out_of_fold")

    @property
    def report(self) -> Path:
        """The page with pictures and what it was drawn from."""
        return self.root / "report"

    def cases(self) -> tuple[ReleaseCase, ...]:
        """The prepared patients, sorted by ID."""
        return tuple(case_of(record) for record in self._after("prepare", self.cases_json))

    def splits(self) -> Splits:
        """Who is held out when."""
        self._after("prepare", self.splits_json)
        return read_splits(self.splits_json)

    def prepared(self) -> dict[str, Any]:
        """What `prepare` did."""
        record: dict[str, Any] = self._after("prepare", self.prepare_json)
        return record

    def plan(self) -> Plan:
        """The options of the plan."""
        options: dict[str, Any] = self._after("plan", self.plan_json)["options"]
        tuples: dict[str, Any] = {key: tuple(value) for key, value in options.items() if isinstance(value, list)}
        return Plan(**{**options, **tuples})

    def plans(self) -> dict[str, Any]:
        """nnU-Net's plans."""
        plans: dict[str, Any] = self._after("plan", self.folders.plans)
        return plans

    def heads(self) -> dict[str, Any]:
        """The records of the fitted heads by name."""
        records: dict[str, Any] = self._after("heads", self.heads_json)
        return records

    def judged(self) -> dict[str, Any]:
        """What the heads may expect of unseen patients."""
        document: dict[str, Any] = self._after("heads", self.cross_validation_json)
        return document

    def write_cases(self, cases: Sequence[ReleaseCase]) -> None:
        """Keep the prepared patients."""
        write_json(self.cases_json, [case.as_json() for case in cases])

    def plan_key(self, plan: Plan) -> str:
        """What a plan is made from: its options, the prepared images and the splits."""
        made_from = {"plan": plan.identity(), "data": self.prepared()["data"], "splits": self.splits().held_out}
        return key_of((), made_from)

    def _after(self, step: str, path: Path) -> Any:
        if not path.is_file():
            raise HecktorError(path.name, f"not found in {self.root.name}", f"`hecktor train {step}` before")
        return read_json(path)
