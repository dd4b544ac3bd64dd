# Sourced by the scripts that call a container engine.
# shellcheck shell=bash

# Find the first client that reaches a daemon or needs no daemon; HECKTOR_ENGINE names a client.
find_engine() {
    local client
    for client in ${HECKTOR_ENGINE:-docker /usr/bin/docker podman}; do
        if command -v "$client" >/dev/null 2>&1 && timeout 20 "$client" info >/dev/null 2>&1; then
            echo "$client"
            return 0
        fi
    done
    return 1
}

# Find the first such client that can build with secrets and bind mounts. A Docker client older than 23 includes
# BuildKit, a newer Docker client needs the buildx plug-in, and Podman has its own builder.
find_builder() {
    local client major
    for client in ${HECKTOR_ENGINE:-docker /usr/bin/docker podman}; do
        if ! command -v "$client" >/dev/null 2>&1 || ! timeout 20 "$client" info >/dev/null 2>&1; then continue; fi
        if is_podman "$client" || "$client" buildx version >/dev/null 2>&1; then
            echo "$client"
            return 0
        fi
        major="$("$client" version --format '{{.Client.Version}}' | cut -d. -f1)"
        if [ "${major:-99}" -lt 23 ]; then
            echo "$client"
            return 0
        fi
    done
    return 1
}

is_podman() {
    "$1" --version 2>/dev/null | grep -qi podman
}

# Print the tag of an image: $1 cuda or cpu, $2 exec or invoke, $3 empty or require-model.
image_tag() {
    local tag=""
    [ "$1" = cpu ] || tag="-$1"
    [ "$2" = exec ] || tag="$tag-$2"
    tag="$tag${3:+-$3}"
    tag="${tag#-}"
    echo "${tag:-latest}"
}

# Print the tag of an image with code, nothing without a folder: $1 tag of the image without code, then the folders' names.
code_tag() {
    local tag="$1" names=("${@:2}")
    [ ${#names[@]} -gt 0 ] || return 0
    [ "$tag" = latest ] && tag="" || tag="$tag-"
    (IFS=-; echo "$tag${names[*]}")
}

# Print the image that $1 names in a command, with the tag $2: hecktor-$1 if it exists, otherwise the image $1.
image_of() {
    local name="hecktor-$1:$2"
    if ! "$ENGINE" image inspect "$name" >/dev/null 2>&1; then
        if "$ENGINE" image inspect "$1:$2" >/dev/null 2>&1; then name="$1:$2"; fi
    fi
    echo "$name"
}

die() {
    echo "error: $*" >&2
    exit 1
}

human_size() {
    numfmt --to=si --suffix=B --format=%.2f "$1"
}

# Print one line for each algorithm of an edition's file: image, evaluation image (- if it is not scored), edition, task.
# Without a file, print the algorithms of all shipped editions that declare their own. Only the standard library is used,
# because images are built without `.venv`.
declared_images() {
    python3 - "$@" <<'PYTHON'
import json
import pathlib
import sys

shipped = pathlib.Path("contract/editions")
for path in map(pathlib.Path, sys.argv[1:] or sorted(shipped.glob("*.json"))):
    try:
        edition = json.loads(path.read_text(encoding="utf-8"))
        if not sys.argv[1:] and "algorithms_of" in edition:
            continue
        if "algorithms_of" in edition:
            declaring = shipped / f"{edition['algorithms_of']}.json"
            edition["algorithms"] = json.loads(declaring.read_text(encoding="utf-8"))["algorithms"]
        for task in edition["algorithms"]:
            image = task.get("image", "hecktor-" + task["name"])
            evaluation = "hecktor-evaluation-" + image.removeprefix("hecktor-")
            print(image, evaluation if task["name"] in edition["scoring"] else "-", edition["name"], task["name"])
    except OSError as problem:
        sys.exit(f"error: {path.name}: {problem.strerror}, expected the JSON file of an edition")
    except (ValueError, TypeError, KeyError) as problem:
        sys.exit(f"error: {path.name}: {problem!r}, expected the JSON file of an edition")
PYTHON
}
