# The evaluation images: one target per task (segmentation, rfs, hpv), without torch.
# Arguments, secret and wheelhouse are those of algorithm.Dockerfile. The ground truth is uploaded separately.
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS dependencies
ARG PIP_INDEX_URL
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
RUN python3 -m venv /opt/venv
COPY docker/pip-install docker/pip-check /usr/local/bin/
COPY requirements/evaluation.txt /requirements/evaluation.txt
RUN --mount=type=secret,id=ca,target=/run/secrets/ca \
    --mount=type=bind,source=build/wheelhouse,target=/wheelhouse \
    --mount=type=cache,target=/root/.cache/pip \
    pip-install /requirements/evaluation.txt
RUN pip-check /opt/venv/bin/python \
    && /opt/venv/bin/python -m pip uninstall --yes --quiet pip \
    && { /opt/venv/bin/python -m compileall -q -j 0 /opt/venv > /dev/null || true; }

FROM ${BASE_IMAGE} AS common
RUN groupadd --gid 1000 hecktor && useradd --uid 1000 --gid 1000 --create-home --shell /usr/sbin/nologin hecktor
COPY --from=dependencies /opt/venv /opt/venv
COPY contract /opt/app/contract
COPY evaluation /opt/app/evaluation
# The packages are copied, not installed; this file provides their version.
ARG VERSION=0
RUN mkdir /opt/app/hecktor.dist-info \
    && printf 'Metadata-Version: 2.1\nName: hecktor\nVersion: %s\n' "${VERSION}" > /opt/app/hecktor.dist-info/METADATA \
    && /opt/venv/bin/python -m compileall -q /opt/app
ENV PATH=/opt/venv/bin:$PATH PYTHONPATH=/opt/app PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
LABEL org.grand-challenge.api-method=exec
WORKDIR /opt/app
USER hecktor
CMD []

FROM common AS segmentation
ENTRYPOINT ["/opt/venv/bin/python", "-m", "evaluation", "--task", "segmentation"]

FROM common AS rfs
ENTRYPOINT ["/opt/venv/bin/python", "-m", "evaluation", "--task", "rfs"]

FROM common AS hpv
ENTRYPOINT ["/opt/venv/bin/python", "-m", "evaluation", "--task", "hpv"]
