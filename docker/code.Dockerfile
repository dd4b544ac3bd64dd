# An algorithm image with entrants' code, and in another layer the packages that it requires.
#
#   ALGORITHM_IMAGE  the image of scripts/build without code
#   BASE_IMAGE       as that image's; its pip installs the packages
#   build/code       the folders, each a Python package with an optional requirements.txt
#   secret `ca`, build/wheelhouse  as in algorithm.Dockerfile
ARG ALGORITHM_IMAGE
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${ALGORITHM_IMAGE} AS algorithm

FROM ${BASE_IMAGE} AS packages
ARG PIP_INDEX_URL
ENV PIP_ROOT_USER_ACTION=ignore
RUN python3 -m venv /opt/pip
COPY docker/code-install /usr/local/bin/
COPY build/code /code
RUN --mount=type=secret,id=ca,target=/run/secrets/ca \
    --mount=type=bind,source=build/wheelhouse,target=/wheelhouse \
    --mount=type=bind,from=algorithm,source=/opt/venv,target=/opt/venv \
    --mount=type=cache,target=/root/.cache/pip \
    code-install /opt/pip/bin/python /opt/venv/bin/python /opt/code-packages /code

FROM algorithm
COPY --from=packages /opt/code-packages /opt/code-packages
COPY build/code /opt/code
# After ours: no package of an entrant takes the place of one of these.
ENV PYTHONPATH=/opt/app:/opt/code-packages/site-packages
