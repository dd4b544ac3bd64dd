"""Export of a training's model package: networks, heads, fitted features and model card."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from algorithm.heads.documents import Head
from algorithm.heads.feature_hook import folders_of
from algorithm.heads.head_hook import folders_of_code
from baseline.fit import check_heads
from baseline.heads.fitting import collect_fallbacks, describe_masks, make_lesion_size_entry, read_heads
from baseline.heads.record import read_cross_validation
from baseline.network.jobs import list_final_checkpoints
from baseline.network.plans import read_plan
from baseline.own_features import load_fitted_hooks, read_feature_digests, read_fit_digests
from baseline.package.calibration import calibration_entry
from baseline.package.card import DEFAULTS, model_card
from baseline.package.existing import existing_networks, networks_record
from baseline.postprocessing.record import load_rules_in_use
from baseline.preparation import read_training_edition
from baseline.release.cases import read_cases
from baseline.release.splits import read_splits
from baseline.work import WorkFolders
from contract.code import Code
from contract.packages import make_edition_entries

if TYPE_CHECKING:  # imports torch
    from baseline.package.members import EnsembleMember


def export_model(
    work: WorkFolders, output: Path, description: Mapping[str, str] = DEFAULTS, code: Code | None = None
) -> Path:
    """Write the model package of networks and fitted heads, with its model card, to `output`; return `output`.

    `code` is the custom code of networks, which are tried before they are packed.

    Raises:
        HecktorError: A step has not been run, or the heads were fitted before another step changed their features.
    """
    from baseline.package.export import PackageContents, export_contents  # torch takes seconds

    check_heads(work)
    heads = {name: record.head for name, record in read_heads(work).items()}
    manifest = _make_manifest(work, heads, description)
    card = model_card(work, description)
    if code:
        code.use(folders_of_code(heads.values()))
    features = load_fitted_hooks(work.heads_json.parent, heads.values(), code or Code({})) if heads else []
    existing = existing_networks(work)
    if existing is not None:
        if code:
            code.use(existing.manifest.code)
        contents = PackageContents(existing, heads, manifest, card, features, code, work.custom_heads)
    else:
        members, entries = _read_trained_members(work)
        contents = PackageContents(members, heads, {**manifest, **entries}, card, features, None, work.custom_heads)
    return export_contents(output, contents)


def _make_manifest(work: WorkFolders, heads: Mapping[str, Head], description: Mapping[str, str]) -> dict[str, Any]:
    """Make the manifest without the entries of trained networks."""
    fitted, document = read_heads(work), read_cross_validation(work)
    cases, splits, edition = read_cases(work), read_splits(work), read_training_edition(work)
    existing = existing_networks(work)
    training = {
        "patients": len(cases),
        "centres": sorted({case.centre for case in cases}),
        "folds": len(splits.folds),
        "seed": splits.seed,
    }
    training |= {"heads_fitted_on": masks} if (masks := describe_masks(fitted)) else {}
    training |= {"plan": read_plan(work).to_record()} if existing is None else {}
    rules = load_rules_in_use(work)
    manifest = {
        **description,
        **make_edition_entries(edition),
        **({} if rules is None else {"postprocessing": rules}),
        "training": training,
        **({} if existing is None else {"networks_from": networks_record(existing)}),
        "fallbacks": collect_fallbacks(edition, fitted),
        **calibration_entry(work),
        **make_lesion_size_entry(fitted),
        "out_of_fold": {
            name: {record.metric: round(record.out_of_fold, 4), "setting": dict(record.setting)}
            for name, record in fitted.items()
        },
        "cross_validation": document.to_manifest(),
    }
    if custom := {*folders_of(heads.values()), *folders_of_code(heads.values())}:
        digests = read_feature_digests(work) | read_fit_digests(work) | document.code_digests()
        manifest["code"] = {name: digest for name, digest in digests.items() if name in custom}
    return manifest


def export_networks(work: WorkFolders) -> Path:
    """Write a package of the trained networks without heads, for the measurement; return its folder."""
    from baseline.package.export import PackageContents, export_contents

    members, entries = _read_trained_members(work)
    description = {"name": "out-of-fold", "purpose": "measuring features in training"}
    description |= make_edition_entries(read_training_edition(work))
    return export_contents(work.root / "bare_package", PackageContents(members, {}, {**description, **entries}))


def _read_trained_members(work: WorkFolders) -> tuple[list[EnsembleMember], dict[str, Any]]:
    """Read the trained networks, fold 0 first as `ModelPackage` expects, and make their entries of the manifest."""
    from baseline.network.checkpoint import read_checkpoint
    from baseline.package.members import EnsembleMember
    from baseline.package.nnunet_results import read_trained_plans

    plans, final = work.read(work.plans), list_final_checkpoints(work)
    members = [
        EnsembleMember(read_trained_plans(plans, name), name, map(read_checkpoint, paths))
        for name, paths in final.items()
    ]
    # The checkpoint has the plan's mirror axes, or no axes if the trainer does not mirror.
    mirror_axes = read_checkpoint(next(iter(final.values()))[0]).mirror_axes
    # docs/formats.md compares the averages.
    channels = list(read_training_edition(work).algorithms[0].channels)
    return members, {"channels": channels, "mirror_axes": list(mirror_axes), "average": "probabilities"}
