# An algorithm image with custom code, and in a separate layer the packages that the code requires.
#
#   ALGORITHM_IMAGE  the image of scripts/build without code
#   BASE_IMAGE       the base of that image; its pip installs the packages
#   build/code       the folders of code, each a Python package with an optional requirements.txt
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
# The image's own packages come first, so that no package of the custom code replaces them.
ENV PYTHONPATH=/opt/app:/opt/code-packages/site-packages
