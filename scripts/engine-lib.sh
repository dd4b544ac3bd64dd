# Sourced by the scripts that call a container engine.

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
        command -v "$client" >/dev/null 2>&1 && timeout 20 "$client" info >/dev/null 2>&1 || continue
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

die() {
    echo "error: $*" >&2
    exit 1
}

human_size() {
    numfmt --to=si --suffix=B --format=%.2f "$1"
}

# One line for each algorithm of the declared editions: its image, evaluation image, edition, task, evaluation profile
# and time limit in seconds.
declared_images() {
    local python=.venv/bin/python
    [ -x "$python" ] || python=python3
    "$python" -c '
from contract.editions import known_editions, load_edition
for edition in map(load_edition, known_editions()):
    for task in edition.algorithms:
        limit = f"{task.time_limit_s:g}"
        print(task.image, task.evaluation_image, edition.name, task.name, edition.evaluation_profile, limit)
'
}
