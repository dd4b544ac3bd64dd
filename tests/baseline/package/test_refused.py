"""Tests that results which cannot be packaged are refused."""

from __future__ import annotations

import argparse
import os
import pickle
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from algorithm.network.package import INTENSITIES
from baseline.package.cli import main, parse_package_output
from baseline.package.existing import read_results
from contract.errors import HecktorError, ModelPackageError
from contract.io.files import write_json
from tests.baseline.package.nnunet_results import edit, edit_checkpoint, edit_dataset, edit_plan, edit_training, package

FIRST = "fold_0/checkpoint_final.pth"


def rename_configuration(configuration: str, **values: Any) -> Callable[[Path], None]:
    """Change both folds as if they had been trained by `configuration`, which is added to the plans."""

    def apply(results: Path) -> None:
        change = edit_training("plans.json", lambda p: p["configurations"].setdefault(configuration, {}).update(values))
        change(results)
        for fold in (0, 1):
            edit_checkpoint(lambda content: content["init_args"].update(configuration=configuration), fold)(results)

    return apply


def find_architecture(plans: Any) -> Any:
    return plans["configurations"]["3d_fullres"]["architecture"]


def edit_architecture(**values: Any) -> Callable[[Path], None]:
    return edit_training("plans.json", lambda plans: find_architecture(plans).update(values))


def rename_checkpoint(kind: str) -> Callable[[Path], Path]:
    """Return a change that renames the second fold's final checkpoint."""
    return lambda results: (results / "fold_1/checkpoint_final.pth").rename(results / f"fold_1/checkpoint_{kind}.pth")


class _Hostile:
    """Object whose pickle runs a command when it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("exit 1",)


def replace_member(name: str, content: bytes) -> Callable[[Path], None]:
    """Return a change that replaces one member of the first fold's checkpoint, with a valid checksum."""

    def apply(results: Path) -> None:
        path = results / FIRST
        with zipfile.ZipFile(path) as archive:
            members = {member: archive.read(member) for member in archive.namelist()}
        with zipfile.ZipFile(path, "w") as archive:
            for member, data in members.items():
                archive.writestr(member, content if member.endswith(f"/{name}") else data)

    return apply


def damage_weights(results: Path) -> None:
    """Change the last byte of the first tensor in the first fold's checkpoint."""
    path = results / FIRST
    with zipfile.ZipFile(path) as archive:
        tensor = archive.read(next(name for name in archive.namelist() if name.endswith("/data/0")))
    data = bytearray(path.read_bytes())
    data[data.index(tensor) + len(tensor) - 1] ^= 1
    path.write_bytes(data)


def cut_off(results: Path) -> None:
    """Leave out the second half of the first fold's checkpoint."""
    path = results / FIRST
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


# Change of the results, and the error.
REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no plans": (lambda r: (r / "plans.json").unlink(), r"no plans\.json, expected nnU-Net's results"),
    "no dataset": (lambda r: (r / "dataset.json").unlink(), r"^error: dataset\.json: not found"),
    "no folds": (lambda r: [shutil.rmtree(r / f"fold_{k}") for k in (0, 1)], "no fold_<number>"),
    "an unfinished fold": (rename_checkpoint("latest"), r"fold_1: found checkpoint_latest\.pth, .* unfinished folds$"),
    "only the best": (rename_checkpoint("best"), r"fold_1: found checkpoint_best\.pth, .*_final\.pth, or --checkpoint best;"),
    "two dimensions": (rename_configuration("2d"), r"2d has spacing \[6\.0, 4\.5\], expected a network of three dim"),
    "a cascade": (
        rename_configuration("3d_cascade_fullres", inherits_from="3d_fullres", previous_stage="3d_lowres"),
        "3d_cascade_fullres is the second stage of a cascade after '3d_lowres', expected 3d_fullres, or 3d_lowres on",
    ),
    "a configuration that is not there": (
        edit_checkpoint(lambda c: c["init_args"].update(configuration="3d_huge")),
        r"plans\.json: not nnU-Net's plans for '3d_huge'",
    ),
    "plans without intensities": (
        edit_training("plans.json", lambda plans: plans.pop("foreground_intensity_properties_per_channel")),
        r"plans\.json: no 'foreground_intensity_properties_per_channel', expected nnU-Net's plans$",
    ),
    "no channels": (edit_dataset(channel_names={}), r"channel_names \{\}, expected channels 0, 1, \.\.\. with all or some of"),
    "a channel of another name": (
        edit_dataset(channel_names={"0": "noNorm", "1": "PET"}),
        r"channels 0 'noNorm', 1 'PET', expected names among CT, PET, or --channels NAME=0,NAME=1 with",
    ),
    "a label of another name": (
        edit_dataset(labels={"background": 0, "node": 1, "gtvp": 2, "ignore": 3}),
        r"labels 1 'node', 2 'gtvp', expected names among GTVp, GTVn, or --labels NAME=1,NAME=2 with",
    ),
    "regions": (edit_dataset(labels={"background": 0, "GTVp": [1, 2], "GTVn": 2}), "with regions, expected plain labels"),
    "an unknown network": (edit_architecture(network_class_name="a.b.SwinUNETR"), "network 'SwinUNETR', expected one of"),
    "an unknown normalisation": (edit_plan(normalization_schemes=["CTNormalization", "Mine"]), "normalisation 'Mine', exp"),
    "normalised within a mask": (edit_plan(use_mask_for_norm=[False, True]), "use_mask_for_norm is true, expected false"),
    "another preprocessor": (edit_plan(preprocessor_name="Mine"), "preprocessor 'Mine', expected DefaultPreprocessor"),
    "a reader that turns images": (
        edit_training("plans.json", lambda p: p.update(image_reader_writer="NibabelIOWithReorient")),
        "image_reader_writer 'NibabelIOWithReorient', expected SimpleITKIO or NibabelIO",
    ),
    "an impossible patch": (edit_plan(patch_size=[8, 30, 32]), r"patch_size \[8, 30, 32\], expected multiples of \[\d+, "),
    "another order of axes": (
        edit_training("plans.json", lambda p: p.update(transpose_forward=[0, 0, 2])),
        r"transpose_forward \[0, 0, 2\], expected 0, 1 and 2",
    ),
    "a fold of other plans": (
        edit_checkpoint(lambda c: c["init_args"]["plans"]["configurations"]["3d_fullres"].update(spacing=[3, 6, 4]), 1),
        r"fold_1/checkpoint_final\.pth: trained with spacing \[3, 6, 4\], expected \[18\.0, 6\.0, 4\.5\] as in fold_0",
    ),
    "a fold of another data set": (
        edit_checkpoint(lambda c: c["init_args"]["dataset_json"].update(labels={"background": 0}), 1),
        r"fold_1/checkpoint_final\.pth: trained with labels \{\"background\": 0\}, expected .* as in fold_0",
    ),
    "a fold of another training": (
        edit_checkpoint(lambda c: c.update(inference_allowed_mirroring_axes=None), fold=1),
        r"fold_1/checkpoint_final\.pth: mirror_axes \(\), expected \(0, 2\) as in fold_0",
    ),
    "a tensor too few": (
        edit_checkpoint(lambda c: c["network_weights"].popitem()),
        r"fold_0/checkpoint_final\.pth: decoder\..* is only in the network of plans\.json",
    ),
    "a tensor of another shape": (
        edit_checkpoint(lambda c: c["network_weights"].update({next(iter(c["network_weights"])): torch.zeros(7)})),
        r"fold_0/checkpoint_final\.pth: encoder\..* of shape \(7,\), expected",
    ),
    "a weight beyond float16": (
        edit_checkpoint(lambda c: next(iter(c["network_weights"].values())).fill_(1e6)),
        r"fold_0/checkpoint_final\.pth: encoder\..* NaN, infinity or a number beyond float16",
    ),
    "no checkpoint": (lambda r: (r / FIRST).write_bytes(b"no checkpoint"), f"{FIRST}: not a torch file"),
    "a pickle that torch cannot read": (
        replace_member("data.pkl", pickle.dumps(_Hostile())),
        rf"^error: {FIRST}: damaged \(Unsupported operand 149\), expected a checkpoint as nnU-Net wrote it",
    ),
    "another byte order": (replace_member("byteorder", b"l"), rf"^error: {FIRST}: damaged \(Unknown endianness type: l\)"),
    "a member with another byte": (damage_weights, rf"^error: {FIRST}: damaged \(.*/data/0 has a wrong checksum\)"),
    "cut off": (cut_off, rf"^error: {FIRST}: damaged \(cut off, or no index of its members\)"),
    "a tensor without values": (
        edit_checkpoint(lambda c: c["network_weights"].update(extra=torch.zeros(1, device="meta"))),
        rf"^error: {FIRST}: extra is not a plain tensor, expected dense weights by name",
    ),
    "something else": (lambda r: torch.save({"state_dict": {}}, r / FIRST), f"{FIRST}: no `network_weights`, expected a"),
}  # fmt: skip


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_results_that_are_refused(case: str, results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Errors are one line with the file, what was found and what was expected; nothing is written."""
    spoil, message = REFUSED[case]
    spoil(results)
    assert package(results, tmp_path / "out" / "model.tar.gz") == 1
    assert re.search(message, capsys.readouterr().err.splitlines()[-1])
    assert not list((tmp_path / "out").rglob("*"))


def test_folders_that_are_no_results(
    results: Path, tiny_package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder, message in (
        (results / "fold_0", "fold_0: no plans.json, expected nnU-Net's results, DatasetXXX_Name/Trainer__Plans__"),
        (tiny_package, f"{tiny_package.name}: found a model package, expected nnU-Net's results"),
    ):
        assert package(folder, tmp_path / "model") == 1
        assert capsys.readouterr().err.splitlines()[-1].startswith(f"error: {message}")


def test_a_missing_fold(tmp_path: Path) -> None:
    results = tmp_path / "Trainer__Plans__3d_fullres"
    for name in ("plans.json", "dataset.json"):
        write_json(results / name, {})
    for fold in (0, 1):
        (results / f"fold_{fold}").mkdir()
    with pytest.raises(ModelPackageError, match=r"^--folds: found 7"):
        read_results(results, ["1", "7"], "final")


def test_checkpoints_without_a_configuration(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Custom trainers may not record it: the folder's name gives it, and a note names what it does not record."""
    for fold in (0, 1):
        edit_checkpoint(lambda content: content.pop("init_args"), fold)(results)
    assert package(results, tmp_path / "model") == 0
    assert f"note: plans.json of Dataset001_Tiny-{results.name} is taken as it is: fold_0/" in capsys.readouterr().out
    assert package(results.rename(tmp_path / "trained"), tmp_path / "other") == 1
    message = "fold_0/checkpoint_final.pth: records no configuration, expected one, or a results folder named Trainer__"
    assert message in capsys.readouterr().err


# Records of the checkpoints


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("plans.json", lambda plans: plans["configurations"]["3d_fullres"].update(spacing=[3.0, 6.0, 4.5])),
        ("plans.json", lambda plans: plans.update(transpose_forward=[0, 1, 2], transpose_backward=[0, 1, 2])),
        ("plans.json", lambda plans: plans[INTENSITIES]["0"].update(std=300.0)),
        ("dataset.json", lambda dataset: dataset["labels"].update(GTVp=2, GTVn=1)),
    ],
    ids=["spacing", "order of axes", "intensities", "labels"],
)
def test_files_that_were_edited_after_the_training_change_nothing(
    name: str, change: Callable[[Any], Any], results: Path, tmp_path: Path
) -> None:
    assert package(results, tmp_path / "model") == 0
    edit(name, change)(results)
    assert package(results, tmp_path / "other") == 0
    for file in ("plans.json", "manifest.json", "fold_0.safetensors"):
        assert (tmp_path / "other" / file).read_bytes() == (tmp_path / "model" / file).read_bytes()


def test_values_that_a_configuration_inherits(results: Path, tmp_path: Path) -> None:
    """3d_wider inherits from 3d_wide, which inherits from 3d_fullres."""
    chain = {"3d_wide": {"inherits_from": "3d_fullres"}, "3d_wider": {"inherits_from": "3d_wide"}}
    edit_training("plans.json", lambda plans: plans["configurations"].update(chain))(results)
    for fold in (0, 1):
        edit_checkpoint(lambda content: content["init_args"].update(configuration="3d_wider"), fold)(results)
    assert package(results, tmp_path / "model") == 0


def test_fields_used_only_in_training_are_not_compared(results: Path, tmp_path: Path) -> None:
    """Folds may differ in the number of cases and the batch size, which do not change the output."""
    edit_checkpoint(lambda content: content["init_args"]["dataset_json"].update(numTraining=700))(results)
    own = {"batch_size": 99, "resampling_fn_seg": "resample_torch_fornnunet", "batch_dice": True}
    edit_checkpoint(lambda c: c["init_args"]["plans"]["configurations"]["3d_fullres"].update(own), 1)(results)
    assert package(results, tmp_path / "model") == 0


@pytest.mark.parametrize(("key", "file"), [("plans", "plans.json"), ("dataset_json", "dataset.json")])
def test_a_training_without_a_record_is_noted(
    key: str, file: str, results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for fold in (0, 1):
        edit_checkpoint(lambda content: content["init_args"].pop(key), fold)(results)
    assert package(results, tmp_path / "model") == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if "is taken as it is" in line]
    assert len(notes) == 1
    assert re.search(rf"^note: {file} of Dataset001_Tiny.*: fold_0/checkpoint_final\.pth has no copy of it$", notes[0])


# Options


@pytest.mark.parametrize("text", ["m.tgz", "m.tar", "M.ZIP"])
def test_a_package_is_a_folder_or_tar_gz(text: str) -> None:
    """Other archive names are refused, because they would otherwise name a folder."""
    assert parse_package_output("out/m.tar.gz") == Path("out/m.tar.gz")
    assert parse_package_output("m.v2") == Path("m.v2")
    with pytest.raises(argparse.ArgumentTypeError, match=rf"^found '{text}'"):
        parse_package_output(text)


def test_absent_heads_name_the_heads_of_reference_masks(tmp_path: Path) -> None:
    """`train heads --masks reference` writes them to WORK/reference_masks/heads.json; nothing of nnU-Net is read."""
    (tmp_path / "results").mkdir()
    (tmp_path / "reference_masks").mkdir()
    written = tmp_path / "reference_masks" / "heads.json"
    written.touch()
    options = ["--nnunet", str(tmp_path / "results"), "--heads", str(tmp_path / "heads.json"), "--output", "out"]
    with pytest.raises(HecktorError, match=rf"^--heads: no such file: .*, expected {written}, fitted on the reference"):
        main(options)
