# The algorithm images. They differ only in the last layer, which checks
# the edition, and in the variables that name one algorithm of the edition.
#
#   EDITION      edition of the challenge, such as hecktor2026, or /opt/app/edition.json
#   TASK         algorithm of the edition, such as combined
#   BASE_IMAGE   any image with Python 3.11 and venv; scripts/engine makes a local one without a registry
#   TORCH        cpu, or cuda for the CUDA 12.8 build, which runs on the platform's T4
#   VERSION      version of the packages
#   API_METHOD   exec, one process per case, or invoke, a server on port 4743
#   REQUIRE_MODEL  empty, or any text: refuse to answer without a model in /opt/ml/model
#   secret `ca`  the host's CA bundle, for networks that need one; optional
#   build/edition  empty, or a custom edition as edition.json
#   build/wheelhouse  wheels that pip prefers to an index, if their checksums are in the lock; may be empty
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS dependencies
ARG TORCH=cpu
ARG PIP_INDEX_URL
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_REPORTS=/reports
RUN mkdir /reports && python3 -m venv /opt/venv
COPY docker/pip-install docker/pip-check docker/compile-packages docker/list-packages /usr/local/bin/
# torch first, in its own layer: it is by far the largest part and changes least.
COPY requirements/torch-${TORCH}.lock /requirements/torch.lock
RUN --mount=type=secret,id=ca,target=/run/secrets/ca \
    --mount=type=bind,source=build/wheelhouse,target=/wheelhouse \
    --mount=type=cache,target=/root/.cache/pip \
    if [ "$TORCH" = cpu ]; then INDEX="--index https://download.pytorch.org/whl/cpu"; fi; \
    pip-install /opt/venv/bin/python ${INDEX:-} /requirements/torch.lock
COPY requirements/build.lock requirements/algorithm.lock /requirements/
RUN --mount=type=secret,id=ca,target=/run/secrets/ca \
    --mount=type=bind,source=build/wheelhouse,target=/wheelhouse \
    --mount=type=cache,target=/root/.cache/pip \
    pip-install /opt/venv/bin/python /requirements/build.lock /requirements/algorithm.lock
# All packages must accept each other's versions; the CUDA build must support the T4 (sm_75) and hold a cuDNN that computes
# half-precision 3D convolutions, which torch uses from 9.15 on.
RUN pip-check /opt/venv/bin/python \
    && if [ "$TORCH" = cuda ]; then \
        /opt/venv/bin/python -c "import torch; assert 'sm_75' in torch._C._cuda_getArchFlags().split()" \
        && /opt/venv/bin/python -c "from importlib.metadata import version; cudnn = version('nvidia-cudnn-cu12'); \
assert tuple(map(int, cudnn.split('.')[:2])) >= (9, 15), f'found cuDNN {cudnn}, expected 9.15 or newer'"; \
    fi
# Header files, tests and pip are not needed at run time.
ARG SOURCE_DATE_EPOCH=315532800
RUN --mount=type=bind,source=build/wheelhouse,target=/wheelhouse \
    rm -rf /opt/venv/lib/python3*/site-packages/torch/include \
    && list-packages /reports /opt/venv/packages.json \
    && /opt/venv/bin/python -m pip uninstall --yes --quiet pip \
    && compile-packages

FROM ${BASE_IMAGE}
ARG SOURCE_DATE_EPOCH=315532800
RUN --mount=type=bind,source=docker/slim,target=/usr/local/bin/slim touch /mark \
    && groupadd --gid 1000 hecktor && useradd --uid 1000 --gid 1000 --create-home --shell /usr/sbin/nologin hecktor \
    && slim /mark
COPY --from=dependencies /opt/venv /opt/venv
COPY contract /opt/app/contract
COPY algorithm /opt/app/algorithm
COPY LICENSE NOTICE /opt/app/
# The packages are copied, not installed; this file provides their version.
ARG VERSION=0
RUN mkdir /opt/app/hecktor.dist-info \
    && printf 'Metadata-Version: 2.1\nName: hecktor\nVersion: %s\n' "${VERSION}" > /opt/app/hecktor.dist-info/METADATA \
    && PYTHONHASHSEED=0 /opt/venv/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/app \
    && find /opt/app -exec touch -hcd "@$SOURCE_DATE_EPOCH" {} +
ENV PATH=/opt/venv/bin:$PATH PYTHONPATH=/opt/app PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /opt/app
ARG EDITION
ARG TASK
ARG API_METHOD=exec
ARG REQUIRE_MODEL
# The entry point reads these variables as its default arguments (contract/entry.py).
ENV HECKTOR_EDITION=${EDITION} HECKTOR_TASK=${TASK} HECKTOR_API_METHOD=${API_METHOD} \
    HECKTOR_REQUIRE_MODEL=${REQUIRE_MODEL}
RUN --mount=type=bind,source=build/edition,target=/mnt \
    find /mnt -name edition.json -exec install -m 0644 {} /opt/app/ \; \
    && python -c "import sys; from contract.editions import load_edition; load_edition(sys.argv[1]).find_algorithm(sys.argv[2])" \
        "${EDITION:?}" "${TASK:?}" \
    && touch -cd "@$SOURCE_DATE_EPOCH" /opt/app/edition.json /opt/app
LABEL org.grand-challenge.api-method=${API_METHOD} \
    org.opencontainers.image.version=${VERSION} \
    org.opencontainers.image.licenses=Apache-2.0
USER hecktor
ENTRYPOINT ["/opt/venv/bin/python", "-m", "algorithm"]
CMD []
