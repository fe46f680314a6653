# Locum with everything that the demo and the studio need, for a user without rights.
#
#   docker build -t locum .
#   docker run --rm --network none locum                                   # the demo, on built-in images
#   docker run --rm --network none -v "$PWD:/work" --user "$(id -u):$(id -g)" locum fit scans -o release --classes-public
#
# `--build-arg PIP_EXTRA_INDEX_URL=...` names an index with the CPU build of torch, which is gigabytes smaller.
FROM python:3.11-slim-bookworm AS build
ARG PIP_EXTRA_INDEX_URL=""
WORKDIR /source
# Packages first: they change less often than the code.
COPY pyproject.toml constraints.txt README.md LICENSE NOTICE ./
COPY src/locum/_version.py src/locum/__init__.py src/locum/
RUN python -m venv /opt/locum \
    && /opt/locum/bin/pip install --no-cache-dir --disable-pip-version-check --constraint constraints.txt '.[studio]'
COPY src src
RUN /opt/locum/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps --force-reinstall .

FROM python:3.11-slim-bookworm
COPY --from=build /opt/locum /opt/locum
# Mode 1777, as /tmp has: a container with --user of another number must be able to write there, too.
RUN useradd --create-home --uid 10001 locum && mkdir -m 1777 /work
ENV PATH=/opt/locum/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    XDG_CACHE_HOME=/tmp/cache
USER 10001
WORKDIR /work
ENTRYPOINT ["locum"]
CMD ["demo"]
