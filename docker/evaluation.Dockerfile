# The evaluation images, without torch. They differ only in the last layer, which checks the edition, and in the variables
# that name one algorithm of the edition. algorithm.Dockerfile explains the other arguments, the secret and the wheelhouse.
# The ground truth is uploaded separately.
#
#   EDITION      edition of the challenge, such as hecktor2026, or /opt/app/edition.json
#   TASK         algorithm of the edition, such as combined
#   API_METHOD   exec, one process for a submission, or invoke, a server on port 4743
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS dependencies
ARG PIP_INDEX_URL
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_REPORTS=/reports
RUN mkdir /reports && python3 -m venv /opt/venv
COPY docker/pip-install docker/pip-check docker/compile-packages docker/list-packages /usr/local/bin/
COPY requirements/evaluation.lock /requirements/evaluation.lock
RUN --mount=type=secret,id=ca,target=/run/secrets/ca \
    --mount=type=bind,source=build/wheelhouse,target=/wheelhouse \
    --mount=type=cache,target=/root/.cache/pip \
    pip-install /opt/venv/bin/python /requirements/evaluation.lock
ARG SOURCE_DATE_EPOCH=315532800
RUN --mount=type=bind,source=build/wheelhouse,target=/wheelhouse \
    pip-check /opt/venv/bin/python \
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
COPY evaluation /opt/app/evaluation
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
# The entry point reads these variables as its default arguments (contract/entry.py). If the first argument of a run is
# `rank`, the image ranks the teams of this edition and task (evaluation/__main__.py).
ENV HECKTOR_EDITION=${EDITION} HECKTOR_TASK=${TASK} HECKTOR_API_METHOD=${API_METHOD}
RUN --mount=type=bind,source=build/edition,target=/mnt \
    find /mnt -name edition.json -exec install -m 0644 {} /opt/app/ \; \
    && python -c "import sys; from evaluation.editions.profile import load_profile; load_profile(sys.argv[1]).find_task(sys.argv[2])" \
        "${EDITION:?}" "${TASK:?}" \
    && touch -cd "@$SOURCE_DATE_EPOCH" /opt/app/edition.json /opt/app
LABEL org.grand-challenge.api-method=${API_METHOD} \
    org.opencontainers.image.version=${VERSION} \
    org.opencontainers.image.licenses=Apache-2.0
USER hecktor
ENTRYPOINT ["/opt/venv/bin/python", "-m", "evaluation"]
CMD []
