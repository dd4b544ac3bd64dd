# Sourced by the scripts that call a container engine.
# shellcheck shell=bash

# The first client that reaches a daemon or needs none; HECKTOR_ENGINE names a client.
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

# The first such client that can build with secrets and bind mounts: a Docker client older than 23 includes BuildKit,
# a newer one needs the buildx plug-in, and Podman has its own builder.
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

# The tag of an image: $1 cuda or cpu, $2 exec or invoke, $3 empty or require-model.
image_tag() {
    local tag=""
    [ "$1" = cpu ] || tag="-$1"
    [ "$2" = exec ] || tag="$tag-$2"
    tag="$tag${3:+-$3}"
    tag="${tag#-}"
    echo "${tag:-latest}"
}

# The tag of an image with code: $1 that of the image without, then the names of the folders. Empty without a folder.
code_tag() {
    local tag="$1" names=("${@:2}")
    [ ${#names[@]} -gt 0 ] || return 0
    [ "$tag" = latest ] && tag="" || tag="$tag-"
    (IFS=-; echo "$tag${names[*]}")
}

# The image that $1 names in a command, with the tag $2: that of this project, or the one with just this name.
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

# Prints one line for each algorithm of the editions in the given files (default: the shipped editions): image, evaluation
# image, edition, task and evaluation profile. Uses only the standard library, because images are
# built without `.venv`.
declared_images() {
    [ $# -gt 0 ] || set -- contract/editions/*.json
    python3 - "$@" <<'PYTHON'
import json
import sys

for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as file:
        edition = json.load(file)
    for task in edition["algorithms"]:
        image = task.get("image", "hecktor-" + task["name"])
        images = f"{image} hecktor-evaluation-{image.removeprefix('hecktor-')}"
        profile = edition["evaluation_profile"]
        profile = profile if isinstance(profile, str) else edition["name"]
        print(images, edition["name"], task["name"], profile)
PYTHON
}
