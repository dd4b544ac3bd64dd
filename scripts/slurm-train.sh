#!/usr/bin/env bash
# An example for a cluster with Slurm. After `hecktor train prepare` and `hecktor train plan` have been run in WORK:
#
#   WORK=/data/work PACKAGE=/data/package scripts/slurm-train.sh
#
# submits an array with one task for each unfinished network (fold x backbone), and a job for postprocessing, heads, report
# and export that starts once all tasks have succeeded and is removed if one fails. After a failure or time-out, run it
# again once the array has ended: it submits the unfinished networks, which continue from their last checkpoint.
# Settings with their defaults:
#
#   HECKTOR=hecktor     the command, e.g. /opt/hecktor/.venv/bin/hecktor
#   GPUS=1              cards for each network; above 1 they share each batch
#   CPUS=12 MEMORY=48G HOURS=48     of each task
#   SBATCH_EXTRA=       more options for sbatch, e.g. "--partition=gpu --account=me"
set -euo pipefail

: "${WORK:?the working directory of the training}" "${PACKAGE:?the folder of the model package}"
export WORK PACKAGE HECKTOR="${HECKTOR:-hecktor}" GPUS="${GPUS:-1}" CPUS="${CPUS:-12}"

submit() {
    # shellcheck disable=SC2086 - options are words
    sbatch --parsable --export=ALL --cpus-per-task="$CPUS" --mem="${MEMORY:-48G}" --time="${HOURS:-48}:00:00" \
        --gres="gpu:$1" --output="$WORK/slurm/%x-%A-%a.log" ${SBATCH_EXTRA:-} "${@:2}"
}

case "${1:-submit}" in
submit)
    mkdir -p "$WORK/slurm"
    # Each submission has its own list, since the number of unfinished networks falls while the array runs.
    jobs=$(mktemp "$WORK/slurm/jobs-XXXXXX")
    "$HECKTOR" train fold --work "$WORK" --list >"$jobs"
    count=$(wc -l <"$jobs")
    after=()
    if [ "$count" -gt 0 ]; then
        # --requeue: a task that loses its node starts again.
        array=$(submit "$GPUS" --job-name=hecktor-train --array="0-$((count - 1))" --requeue "$0" network "$jobs")
        after=(--dependency="afterok:${array%%;*}" --kill-on-invalid-dep=yes)
    fi
    submit 1 --job-name=hecktor-finish ${after[@]+"${after[@]}"} "$0" finish
    ;;
network)
    read -r fold backbone < <(sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" "$2")
    # exec: the training process itself receives SIGTERM at the time limit.
    exec "$HECKTOR" train fold --work "$WORK" --fold "$fold" --backbone "$backbone" \
        --device cuda --gpus "$GPUS" --jobs "$CPUS"
    ;;
finish)
    "$HECKTOR" train postprocess --work "$WORK" --device cuda --jobs "$CPUS"
    "$HECKTOR" train heads --work "$WORK" --device cuda --jobs "$CPUS"
    "$HECKTOR" train report --work "$WORK" --jobs "$CPUS"
    "$HECKTOR" train export --work "$WORK" --jobs "$CPUS" --output "$PACKAGE"
    ;;
*)
    echo "error: found $1, expected submit, network or finish" >&2
    exit 2
    ;;
esac
