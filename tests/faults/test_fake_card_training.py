"""Runs of `hecktor train fold` with a full and a lost card, simulated on the CPU, with real worker processes."""

from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest
import torch

from baseline.cli import main
from baseline.network import nnunet
from baseline.network.patches import set_environment
from baseline.network.plans import store_plan
from baseline.release.cases import ReleaseCase, write_cases
from baseline.work import WorkFolders
from contract.errors import HecktorError, run_main
from contract.io.files import read_json, write_json
from contract.patient import Patient
from tests.baseline.network.conftest import PATIENTS, PLAN, noise_work  # noqa: F401 - a fixture
from tests.faults.fake_card import FULL, FakeCard

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
EPOCHS = 3


@pytest.fixture
def work(noise_work: WorkFolders) -> WorkFolders:  # noqa: F811
    """Return the planned folder with the files of `prepare` and `plan`, and without a checkpoint."""
    image = Path("image")
    write_cases(noise_work, [ReleaseCase(name, "A", image, image, image, Patient()) for name in PATIENTS])
    write_json(noise_work.prepare_json, {"options": {"release": "r"}})
    splits = {"folds": [[PATIENTS[1]], [PATIENTS[0]]], "centres": {"A": list(PATIENTS)}}
    write_json(noise_work.splits_json, {"format_version": 1, "seed": 3, **splits})
    store_plan(noise_work, "any", PLAN.with_options(epochs=EPOCHS, backbones=("unet",)))
    for checkpoint in noise_work.results.rglob("checkpoint_*.pth"):
        checkpoint.unlink()
    return noise_work


@pytest.fixture
def train(work: WorkFolders, capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, list[str]]]:
    """Run `hecktor train fold --device cuda` for fold 0 with two workers; return exit status and lines of stderr.

    Check that the worker processes have ended.
    """

    def run(*options: str) -> tuple[int, list[str]]:
        words = ["fold", "--work", str(work.root), "--fold", "0", "--device", "cuda", "--jobs", "2", *options]
        before = set(active_children())
        status = run_main(main, words)
        assert set(active_children()) <= before
        return status, capfd.readouterr().err.splitlines()

    return run


def load_final_weights(work: WorkFolders) -> dict[str, torch.Tensor]:
    weights: dict[str, torch.Tensor] = torch.load(work.final(0), weights_only=False)["network_weights"]
    return weights


@pytest.mark.slow
def test_the_seed_reproduces_a_training_with_workers(
    card: FakeCard, work: WorkFolders, train: Callable[..., tuple[int, list[str]]]
) -> None:
    """Two trainings with two augmentation processes give the same weights, bit by bit."""
    status, lines = train()
    assert status == 0, lines
    first = load_final_weights(work)
    assert card.images >= 2 * EPOCHS
    work.final(0).unlink()
    assert train("--deterministic")[0] == 0
    assert torch.backends.cudnn.deterministic
    assert not torch.backends.cudnn.benchmark
    assert all(torch.equal(first[name], tensor) for name, tensor in load_final_weights(work).items())


@pytest.mark.slow
def test_a_network_is_compiled_only_if_asked(
    card: FakeCard, work: WorkFolders, train: Callable[..., tuple[int, list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `torch.compile` the CPU runs the graphs one operation at a time. Checkpoints hold the network's own names."""
    compiled: list[str] = []
    compile_network = torch.compile

    def compile_simply(network: Any) -> Any:
        compiled.append(type(network).__name__)
        return compile_network(network, backend="eager")

    monkeypatch.setattr(torch, "compile", compile_simply)
    status, lines = train("--compile")
    assert status == 0, lines
    assert compiled == ["PlainConvUNet", "MemoryEfficientSoftDiceLoss"]  # nnU-Net compiles its Dice too
    assert not any("WARNING" in line for line in lines)
    assert not any(name.startswith("_orig_mod") for name in load_final_weights(work))
    assert os.environ["nnUNet_compile"] == "t"  # noqa: SIM112
    assert (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic) == (True, False)
    assert card.images >= 2 * EPOCHS


@pytest.mark.slow
def test_a_full_card_ends_a_training_in_one_line(
    card: FakeCard, work: WorkFolders, train: Callable[..., tuple[int, list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Epochs bring one image for training and one for validation. The third does not fit, and the checkpoint of the
    first epoch stays; it does not fit when the training resumes either. With more room, on a slow card, the training
    ends.
    """
    from baseline.network import trainer

    monkeypatch.setattr(trainer, "SAVE_EVERY", 1)
    card.full_at(card.images + 3)
    status, lines = train()
    expected = "a free GPU, or a `plan` with a smaller --memory-gb or --batch-size"
    assert (status, lines[-1]) == (1, f"error: fold 0 (unet): {FULL.partition('. ')[0]}, expected {expected}")
    assert not any("Traceback" in line for line in lines)
    assert torch.load(work.fold(0) / "checkpoint_latest.pth", weights_only=False)["current_epoch"] == 1

    def full(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError(FULL)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "load", full)
        assert train() == (1, [lines[-1]])
    card.slow(0.1)
    assert train()[0] == 0


def test_a_lost_card_ends_a_training_in_one_line(card: FakeCard, train: Callable[..., tuple[int, list[str]]]) -> None:
    card.lost_at(card.images + 2)
    status, lines = train()
    expected = "a working device; the same command continues from the last checkpoint"
    line = f"error: fold 0 (unet): CUDA error: unspecified launch failure, expected {expected}"
    assert (status, lines[-1]) == (1, line)
    assert not any("Traceback" in line for line in lines)


def full_process(rank: int, group: str, work: WorkFolders, *rest: Any) -> None:
    """Run a process of a shared training whose second card is full; the first waits for it."""
    set_environment(work, augmentation_workers=0)
    from baseline.network.trainer import HecktorTrainer

    def full(_: Any) -> None:
        raise torch.OutOfMemoryError(FULL)

    if rank == 1:
        HecktorTrainer.run_training = full  # type: ignore[method-assign]
    PROCESS(rank, group, work, *rest)


PROCESS = nnunet._run_ddp_process


@pytest.mark.slow
def test_one_full_card_of_two_ends_a_training_in_one_line(work: WorkFolders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nnunet, "_run_ddp_process", full_process)
    shared = nnunet.Machine("cpu", gpus=2, threads=2)
    with pytest.raises(HecktorError, match=r"^fold 0 \(unet\): CUDA out of memory"):
        nnunet.train_with_ddp(work, PLAN, 0, "unet", shared, seed=3)


def test_a_busy_card_of_several_ends_a_training_in_one_line(
    work: WorkFolders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If another process uses the card exclusively, the process of this training tells its parent."""

    def busy(_: int) -> None:
        raise RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable\nCUDA kernel errors might be")

    monkeypatch.setattr(torch.cuda, "set_device", busy)
    monkeypatch.setattr(nnunet, "raise_at_sigterm", lambda: None)
    group = str(tmp_path / "group")
    with pytest.raises(SystemExit, match="1"):
        nnunet._run_ddp_process(0, group, work, PLAN, 0, "unet", nnunet.Machine("cuda", gpus=2), 3)
    assert read_json(nnunet._error_path(group)) == [
        "fold 0 (unet)",
        "CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        "a working device; the same command continues from the last checkpoint",
    ]


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (
            RuntimeError("DefaultCPUAllocator: not enough memory. Buy new RAM!"),
            "DefaultCPUAllocator: not enough memory",
        ),
        (MemoryError(), "MemoryError"),
    ],
)
def test_exhausted_memory_of_the_machine(problem: Exception, message: str) -> None:
    """A free GPU would not help."""
    expected = "more free RAM, fewer --jobs, or a `plan` with a smaller --memory-gb or --batch-size"
    with pytest.raises(HecktorError) as refusal, nnunet.explain_failures("fold 0 (unet)"):
        raise problem
    assert (refusal.value.found, refusal.value.expected) == (message, expected)
