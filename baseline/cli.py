"""Command line of training, `hecktor train` or `python -m baseline`: a subcommand for each step, and `all`.

The libraries of the steps are imported only when a step runs, so that `--help` responds at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from baseline.network.plans import CHANNELS_SEEN, DIMENSIONS, PARTS, PRESETS, STEMS
from baseline.package.cli import parse_package_output
from baseline.package.numbering import parse_lesion_numbers
from baseline.work import CONFIGURATIONS, REFERENCE, WorkFolders, require_nnunet_results
from contract.editions import load_edition
from contract.errors import HecktorError
from contract.io.locks import lock_output
from contract.options import (
    Parser,
    add_code_option,
    add_edition_option,
    number_within,
    positive_number,
    require_files,
    require_folders,
    require_paths,
    whole_number,
)
from contract.processes import count_usable_cpus
from contract.release.layout import require_release

# NumPy takes seeds below 2**32, and each network adds its own number.
_MAX_SEED: Final = 2**31
# Function that adds a step from its name, the parsers with its options, and its help text.
_AddStep = Callable[[str, list[Parser], str], Parser]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one step of a training, or all of them.

    Raises:
        HecktorError: A step failed or was interrupted by Ctrl-C.
    """
    arguments = make_parser().parse_args(argv)
    continues = arguments.step not in ("all", "prepare")
    require_folders(arguments, "--release", "--nnunet", "--code", *(["--work"] if continues else []))
    require_files(arguments, "--suv-factors", "--description")
    require_paths(arguments, "--networks", "--average", "--masks")
    work = WorkFolders(arguments.work.resolve())
    if continues:
        work.require(work.cases_json)
    else:
        require_release(arguments.release.absolute(), load_edition(arguments.edition))
    if getattr(arguments, "nnunet", None) is not None:
        require_nnunet_results(arguments.nnunet)
    from baseline.steps import STEPS  # takes seconds

    try:
        with ExitStack() as locks:
            for output in _list_locked_outputs(arguments, work):
                locks.enter_context(lock_output(output))
            return STEPS[arguments.step](arguments, work)
    except KeyboardInterrupt:
        raise HecktorError("interrupted", "finished work is saved; run the same command again to continue") from None


def _list_locked_outputs(arguments: argparse.Namespace, work: WorkFolders) -> list[Path]:
    """List the files and folders that only one process may write at a time.

    The working directory is not locked for steps that may run at the same time. Each network is locked by the process
    that trains it.
    """
    outputs = []
    may_run_concurrently = arguments.step in ("fold", "export", "answers") or getattr(arguments, "check_only", False)
    if not may_run_concurrently:
        outputs.append(work.root)
    if getattr(arguments, "output", None) is not None:
        outputs.append(arguments.output)
    return outputs


def make_parser() -> Parser:
    """Make the parser of the command line."""
    train = Parser(prog="hecktor train", description="Train a model package on a cohort.")
    steps = train.add_subparsers(dest="step", required=True)
    work, jobs = _make_work_option(), _make_jobs_option()

    def add_step(name: str, parents: list[Parser], about: str) -> Parser:
        # `answers` only copies files, so that it has no option for the number of processes.
        parents = [work, *([] if name == "answers" else [jobs]), *parents]
        description = f"{about[0].upper()}{about[1:]}."
        added = steps.add_parser(name, parents=parents, help=about, description=description)
        added.set_defaults(step=name)
        return added

    _add_network_steps(add_step)
    _add_head_steps(add_step)
    return train


def _add_network_steps(add_step: _AddStep) -> None:
    """Add `all` and the steps from the release to the trained networks."""
    prepare, plan, preset = _make_prepare_options(), _make_plan_options(), _make_preset_option()
    device, gpus = _make_device_option(), _make_gpu_options()
    add_step(
        "all",
        [preset, prepare, plan, device, gpus, _make_networks_option(), _make_export_options(), _make_code_option()],
        "run all steps in order; continues an interrupted run",
    )
    check = add_step("prepare", [preset, prepare], "check the release and write the data set")
    check.add_argument("--check-only", action="store_true", help="only check; exit status 1 if there are errors")
    add_step("plan", [preset, plan], "plan and preprocess with nnU-Net")
    fold = add_step("fold", [device, gpus], "train one network, or all unfinished ones")
    fold.add_argument(
        "--fold", type=whole_number(0), help="number of a fold: first the balanced folds, then the left-out centres"
    )
    fold.add_argument("--backbone", choices=tuple(CONFIGURATIONS), help="one backbone of the plan (default: all)")
    fold.add_argument("--list", action="store_true", help="only print fold and backbone of unfinished networks")


def _add_head_steps(add_step: _AddStep) -> None:
    """Add the steps from out-of-fold masks to the package."""
    device, networks, code = _make_device_option(), _make_networks_option(), _make_code_option()
    add_step("postprocess", [device, networks, code], "fit rules on the lesions of the out-of-fold masks")
    heads = add_step("heads", [device, networks, code], "measure out-of-fold masks and fit the heads")
    heads.add_argument(
        "--masks",
        metavar=f"DIR|{REFERENCE}",
        help="measure your own out-of-fold masks, ID.nii.gz or ID.mha on the CT's grid or the prepared images' grid; "
        "or the release's reference masks, whose heads are written to reference_masks/; needs no networks",
    )
    heads.add_argument(
        "--average",
        type=Path,
        nargs="+",
        metavar="WORK",
        help="measure masks by the mean out-of-fold probabilities of the trainings in these working directories, for a "
        "package of all their networks",
    )
    heads.add_argument(
        "--labels",
        type=parse_lesion_numbers,
        metavar="GTVp=1,GTVn=2",
        help="numbers of the labels in your own masks or in the training of --nnunet, if they differ from these; other "
        "labels become background",
    )
    heads.add_argument(
        "--nnunet",
        type=Path,
        metavar="RESULTS",
        help="take the out-of-fold masks of a finished nnU-Net training, DatasetXXX/Trainer__Plans__3d_fullres, from "
        "fold_*/validation",
    )
    add_step("report", [], "write the training report")
    add_step("export", [_make_export_options(), code], "write the model package")
    answers = add_step("answers", [], "write held-out masks, risks and classes as plain files, to compare trainings")
    answers.add_argument("--output", type=Path, required=True, help="new folder, with a subfolder for each model")
    answers.add_argument("--probabilities", action="store_true", help="also write the probabilities of GTVp and GTVn")


def _make_option(*names: str, **settings: Any) -> Parser:
    """Make a parser with one option, for the parents of steps that share it."""
    parser = Parser(add_help=False)
    parser.add_argument(*names, **settings)
    return parser


def _make_work_option() -> Parser:
    return _make_option("--work", type=Path, required=True, help="working directory of the training")


def _make_jobs_option() -> Parser:
    about = "number of processes or threads (default: %(default)s)"
    return _make_option("--jobs", type=whole_number(1), default=count_usable_cpus(), help=about)


def _make_preset_option() -> Parser:
    about = "defaults of spacing and plan (default for phantoms: short; a release of patients needs one by name)"
    return _make_option("--preset", choices=tuple(PRESETS), help=about)


def _make_device_option() -> Parser:
    about = "device of the networks (default: cuda if there is a usable GPU, else cpu)"
    return _make_option("--device", choices=("auto", "cpu", "cuda"), default="auto", help=about)


def _make_networks_option() -> Parser:
    about = "use the networks of a model package (folder or .tar.gz), trained without any of these patients"
    return _make_option("--networks", type=Path, metavar="PACKAGE", help=about)


def _make_gpu_options() -> Parser:
    parser = Parser(add_help=False)
    add = parser.add_argument
    add(
        "--gpus",
        type=whole_number(1),
        default=1,
        help="number of GPUs: one per network, or several (DDP) if fewer networks remain (default: 1)",
    )
    add("--compile", action="store_true", help="train through torch.compile, on a GPU")
    add("--deterministic", action="store_true", help="reproducible GPU algorithms instead of the fastest ones")
    return parser


def _make_code_option() -> Parser:
    parser = Parser(add_help=False)
    what = ": its class Head competes with the built-in heads, its class Features adds features, its networks are used"
    add_code_option(parser, what)
    return parser


def _make_prepare_options() -> Parser:
    parser = Parser(add_help=False)
    add = parser.add_argument
    add("--release", type=Path, required=True, help="folder of the release")
    add(
        "--spacing-mm",
        type=positive_number(),
        nargs=3,
        metavar=("X", "Y", "Z"),
        help="voxel size of the prepared images in mm (default: the size of earlier prepared images, or else the "
        "preset's, 3 3 3 for short and 1 1 1 for the others)",
    )
    add(
        "--folds",
        type=whole_number(2),
        default=5,
        help="number of balanced folds (default: %(default)s)",
    )
    add(
        "--seed",
        type=whole_number(0, _MAX_SEED),
        default=0,
        help="seed of splits, training and heads (default: %(default)s)",
    )
    add("--keep-going", action="store_true", help="exclude cases with errors instead of stopping")
    add(
        "--allow-missing",
        nargs="+",
        default=(),
        metavar="ANSWER",
        help="answers, such as rfs, whose outcome may be missing in the tables; the package then has no head for them",
    )
    add("--suv-factors", type=Path, metavar="TABLE", help="CSV with the factor from Bq/ml to SUV of each patient")
    add(
        "--estimate-suv",
        action="store_true",
        help="estimate the missing factors of PETs in Bq/ml from the uptake of muscle and fat",
    )
    add("--task", help="task whose networks are trained, by name or number; only if the tasks' networks differ")
    add_edition_option(parser)
    return parser


def _make_plan_options() -> Parser:
    parser = Parser(add_help=False)
    add = parser.add_argument
    add("--epochs", type=whole_number(1), help="number of epochs of each network")
    add("--iterations", type=whole_number(1), help="training steps per epoch")
    add("--memory-gb", type=positive_number(), help="memory target of nnU-Net's planner in GB")
    add("--base-features", type=whole_number(1), help="channels at the finest resolution")
    add("--most-features", type=whole_number(1), help="channels at the coarsest resolution")
    add(
        "--learning-rate", type=positive_number(), help="initial learning rate (default: the trainer's or the preset's)"
    )
    add("--batch-size", type=whole_number(1), help="patches per training step")
    add("--mirror-axes", type=int, nargs="*", choices=(0, 1, 2), help="axes of (z, y, x) to mirror")
    add("--backbones", nargs="+", choices=tuple(CONFIGURATIONS), help="networks to train (default: unet)")
    add("--channels", choices=CHANNELS_SEEN, help="input images of the networks: one, both (default), or their mean")
    add("--dimensions", type=int, choices=DIMENSIONS, help="2 for 2D networks on axial slices (default: 3)")
    add(
        "--trainer",
        metavar="NAME|MODULE:CLASS",
        help="a variant of nnU-Net's trainer, such as nnUNetTrainerNoDA, or your subclass in a folder of PYTHONPATH",
    )
    add(
        "--starting-weights",
        type=_resolve_path,
        metavar="PATH",
        help="start from a checkpoint of nnU-Net or nnssl, or a model package",
    )
    add(
        "--starting-parts",
        nargs="+",
        choices=PARTS,
        help="parts of the network that start from these weights (default: encoder decoder)",
    )
    add(
        "--starting-stem",
        choices=STEMS,
        help="first layer if the starting weights were trained on fewer images: repeat a single channel (default), or "
        "zeros for the further images",
    )
    add("--pet-dropout", type=number_within(0, 1), metavar="P", help="probability that a training patch has no PET")
    return parser


def _resolve_path(text: str) -> str:
    return str(Path(text).resolve())


def _make_export_options() -> Parser:
    parser = Parser(add_help=False)
    add = parser.add_argument
    add("--output", type=parse_package_output, required=True, help="model.tar.gz for upload, or a folder")
    add("--description", type=Path, help="JSON with texts for manifest and model card, see docs/formats.md")
    return parser
