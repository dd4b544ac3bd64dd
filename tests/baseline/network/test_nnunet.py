"""Networks of a few thousand weights train on noise, resume, and run in several processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
import torch

from algorithm.network.backbones import build_untrained_network
from algorithm.network.package import load_package
from baseline.network.checkpoint import read_checkpoint
from baseline.network.nnunet import Machine, explain_failures, train_network, train_with_ddp
from baseline.package.cli import main as package
from baseline.work import CONFIGURATIONS, PLANS_NAME, TRAINING_TIME, WorkFolders
from contract.errors import HecktorError
from contract.io.files import read_json
from tests.baseline.network.conftest import PLAN

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")

SHARED = Machine("cpu", gpus=2, threads=2)


@pytest.mark.parametrize(
    ("backbone", "optimiser", "keeps"), [("unet", "adamw", "exp_avg"), ("segresnet", "sgd", "momentum_buffer")]
)
def test_every_backbone_trains_on_the_same_data(
    noise_work: WorkFolders, capsys: pytest.CaptureFixture[str], backbone: str, optimiser: str, keeps: str
) -> None:
    """Trained weights fit the network that inference builds from the plans. The state of a weight shows which optimiser
    was used.
    """
    from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

    final = train_network(noise_work, PLAN.with_options(optimiser=optimiser), 0, backbone, Machine("cpu"), seed=3)
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if "epoch" in line.casefold()]  # nnU-Net's own are in the training log
    assert line.startswith(f"fold 0 ({backbone}): epoch 1 of 1, loss ")
    assert line.endswith("; 0 s left")
    assert 0 < read_json(final.with_name(TRAINING_TIME))["seconds"] < 600
    assert final.with_name("progress.png").is_file()
    assert mpl.rcParams["font.size"] == mpl.rcParamsDefault["font.size"]  # nnU-Net's seaborn is gone again
    assert keeps in torch.load(final, weights_only=False)["optimizer_state"]["state"][0]
    checkpoint = read_checkpoint(final)
    configuration = PlansManager(str(noise_work.plans)).get_configuration(CONFIGURATIONS[backbone]).configuration
    network = build_untrained_network(configuration, 2, 3)
    network.load_state_dict(dict(checkpoint.weights))
    assert checkpoint.mirror_axes == (2,)
    assert checkpoint.configuration == CONFIGURATIONS[backbone]
    assert noise_work.final(0, backbone).parts[-3] == f"HecktorTrainer__{PLANS_NAME}__{CONFIGURATIONS[backbone]}"


@pytest.mark.slow
@pytest.mark.usefixtures("without_plots")
def test_two_trainings_are_packed_together(noise_work: WorkFolders, tmp_path: Path) -> None:
    """Trainings of two backbones in two folders become one package, as do trainings of two working directories."""
    folders = []
    for backbone in ("unet", "segresnet"):
        train_network(noise_work, PLAN, 0, backbone, Machine("cpu"), seed=3)
        folders += ["--nnunet", str(noise_work.fold(0, backbone).parent)]
    options = ["--without-heads", "--normalised-over", "region", "--folds", "0", "--output", str(tmp_path / "both")]
    assert package([*folders, *options]) == 0
    assert load_package(tmp_path / "both").manifest.configurations == ("3d_fullres", "3d_fullres_segresnet")


def test_the_first_weights_of_a_u_net_are_nnunets(noise_work: WorkFolders) -> None:
    """With the same seed the first weights equal the weights of a network that nnU-Net builds from the plans."""
    from nnunetv2.utilities.get_network_from_plans import get_network_from_plans
    from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

    from baseline.network.trainer import HecktorTrainer

    manager = PlansManager(str(noise_work.plans))
    configuration = manager.get_configuration("3d_fullres")
    names = configuration.network_arch_class_name, configuration.network_arch_init_kwargs
    torch.manual_seed(5)
    reference = get_network_from_plans(*names, configuration.network_arch_init_kwargs_req_import, 2, 3)
    torch.manual_seed(5)
    ours = HecktorTrainer.build_network_architecture(None, manager, configuration, 2, 3, True)
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), reference.parameters(), strict=True))


@pytest.mark.slow
@pytest.mark.usefixtures("forked_processes", "without_plots")
def test_two_processes_resume_a_training_of_one_process(
    noise_work: WorkFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted in its second epoch, a training resumes after the first with a batch of two, shared by two processes
    on the CPU. Both processes end, and the log in the final checkpoint has two epochs.
    """
    from baseline.network import trainer

    plan, epochs = PLAN.with_options(epochs=2), [0]

    def interrupt(self: Any) -> None:
        epochs[0] += 1
        if epochs[0] == 2:
            raise KeyboardInterrupt
        super(trainer.HecktorTrainer, self).on_epoch_start()

    monkeypatch.setattr(trainer, "SAVE_EVERY", 1)
    monkeypatch.setattr(trainer.HecktorTrainer, "on_epoch_start", interrupt, raising=False)
    with pytest.raises(KeyboardInterrupt):
        train_network(noise_work, plan, 1, "unet", Machine("cpu"), seed=3)
    latest = noise_work.fold(1, "unet") / "checkpoint_latest.pth"
    assert torch.load(latest, weights_only=False)["current_epoch"] == 1
    final = train_with_ddp(noise_work, plan, 1, "unet", SHARED, seed=3)
    content = torch.load(final, weights_only=False)
    assert content["current_epoch"] == 2
    assert len(content["logging"]["train_losses"]) == 2
    assert not latest.exists()
    last_log = max(final.parent.glob("training_log_*.txt")).read_text()
    assert ("Epoch 0" in last_log, "Epoch 1" in last_log) == (False, True)


@pytest.mark.usefixtures("without_plots")
def test_a_training_that_ends_while_it_writes_leaves_no_half_checkpoint(
    noise_work: WorkFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the disk is full when the last checkpoint is written, no final checkpoint exists and the checkpoint of the
    epoch before is complete. Resuming removes the partial file of a killed process.
    """
    from baseline.network import trainer

    plan, save = PLAN.with_options(epochs=2), torch.save

    def full(content: Any, filename: str) -> None:
        if content["current_epoch"] == 2:
            Path(filename).write_bytes(b"half")
            raise RuntimeError("no space left")
        save(content, filename)

    monkeypatch.setattr(trainer, "SAVE_EVERY", 1)
    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(RuntimeError, match="no space left"):
        train_network(noise_work, plan, 1, "segresnet", Machine("cpu"), seed=3)
    folder = noise_work.fold(1, "segresnet")
    assert not noise_work.final(1, "segresnet").exists()
    assert torch.load(folder / "checkpoint_latest.pth", weights_only=False)["current_epoch"] == 1
    monkeypatch.setattr(torch, "save", save)
    (folder / ".partial-killed.pth").write_bytes(b"half")
    final = train_network(noise_work, plan, 1, "segresnet", Machine("cpu"), seed=3)
    assert torch.load(final, weights_only=False)["current_epoch"] == 2
    assert list(folder.glob(".partial-*")) == []


def test_a_full_gpu_is_one_line(noise_work: WorkFolders, monkeypatch: pytest.MonkeyPatch) -> None:
    from baseline.network import trainer

    def full(_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1.00 GiB free.")

    noise_work.final(0, "segresnet").unlink(missing_ok=True)
    monkeypatch.setattr(trainer.HecktorTrainer, "run_training", full)
    with pytest.raises(HecktorError, match=r"^fold 0 \(segresnet\): CUDA out of memory"):
        train_network(noise_work, PLAN, 0, "segresnet", Machine("cpu"), seed=4)


def test_a_failing_compiler_is_one_line() -> None:
    """Errors of torch.compile's backend and later errors in Triton, when a kernel first runs, are reported in one line."""

    def backend(*_: Any) -> Any:
        raise RuntimeError("Failed to find C compiler. Please specify via CC environment variable.\nAnd more.")

    message = r"^fold 0: torch\.compile failed \({}\), expected Triton and a C compiler .* without --compile$"
    with pytest.raises(HecktorError, match=message.format("Failed to find C compiler")), explain_failures("fold 0"):
        torch.compile(torch.neg, backend=backend)(torch.ones(1))
    triton: dict[str, Any] = {"__name__": "triton.runtime.build"}
    exec("def build(): raise OSError('gcc returned 1')", triton)
    with pytest.raises(HecktorError, match=message.format("gcc returned 1")), explain_failures("fold 0"):
        triton["build"]()
    with pytest.raises(ValueError, match="a bug"), explain_failures("fold 0"):
        raise ValueError("a bug")
