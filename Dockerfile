# The project's two images: `--target operator` (what the Helm chart runs) and `--target worker` (python and the
# elastic_worker package; torch comes from whoever builds on it).
#
# BASE is any image with python3 >= 3.11 and its venv module. Packages come from uv.lock, so the same tree gives the
# same environment. A site with its own index or certificate authority passes the arguments below with --build-arg;
# they reach the build steps only and are in no image.
ARG BASE=docker.io/library/python:3.11-slim-bookworm

FROM ${BASE} AS builder
ARG UV_VERSION=0.13.9
ARG PIP_INDEX_URL
ARG PIP_CERT
ARG UV_DEFAULT_INDEX
ARG SSL_CERT_FILE
# Byte code is made here because a read-only root could not keep what is compiled at run time. It is never checked
# against its source's time: --timestamp, by which a release is the same whenever it is built, changes that.
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    UV_NO_CACHE=1 \
    UV_PROJECT_ENVIRONMENT=/opt/elastic \
    UV_PYTHON=python3 \
    UV_PYTHON_PREFERENCE=only-system \
    UV_LINK_MODE=copy \
    UV_COMPILE_BYTECODE=1 \
    PYC_INVALIDATION_MODE=UNCHECKED_HASH
RUN python3 -m venv /opt/uv && /opt/uv/bin/pip install --quiet "uv==${UV_VERSION}"
WORKDIR /src
# What is installed changes seldom, the sources with every commit: two steps, so that the first stays cached.
COPY pyproject.toml uv.lock ./
COPY api/pyproject.toml api/
COPY client/pyproject.toml client/
COPY operator/pyproject.toml operator/
COPY worker/pyproject.toml worker/
RUN /opt/uv/bin/uv sync --frozen --no-dev --no-install-workspace --package elastic-pytorch-operator \
    # The Kubernetes client's asyncio twin: 73 MB of generated models that nothing here imports.
    && rm -r /opt/elastic/lib/python3*/site-packages/kubernetes/aio
COPY worker worker
COPY api api
COPY operator operator
RUN /opt/uv/bin/uv sync --frozen --no-dev --no-editable --package elastic-pytorch-operator \
    # When uv looked at the sources: of no use here, and another time in each build.
    && cd /opt/elastic/lib/python3*/site-packages \
    && sed -i /uv_cache.json/d elastic_*.dist-info/RECORD \
    && rm elastic_*.dist-info/uv_cache.json

FROM ${BASE} AS worker-builder
COPY worker/elastic_worker /opt/elastic-worker/elastic_worker
RUN python3 -m compileall -q --invalidation-mode unchecked-hash /opt/elastic-worker

FROM ${BASE} AS worker
# A .pth file rather than PYTHONPATH: that variable belongs to whoever brings torch.
RUN echo /opt/elastic-worker > "$(python3 -c 'import site; print(site.getsitepackages()[0])')/elastic-worker.pth"
COPY --from=worker-builder /opt/elastic-worker /opt/elastic-worker
# USER: torch asks for the user's name, and a number has none.
ENV USER=elastic HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
WORKDIR /tmp
CMD ["python3"]

FROM ${BASE} AS operator
COPY --from=builder /opt/elastic /opt/elastic
# Python's official images have no byte code of the standard library, and the read-only root keeps none: to compile the
# modules that the operator imports took half a second of each start.
RUN /opt/elastic/bin/python -B -c "import sys, elastic_operator.kopf_host, elastic_operator.process; \
      print(*sorted(path for module in sys.modules.values() if (path := getattr(module, '__file__', None) or '') \
      .endswith('.py') and not path.startswith('/opt/elastic/')), sep='\n')" > /tmp/imported \
    && /opt/elastic/bin/python -B -m compileall -q -f --invalidation-mode unchecked-hash -i /tmp/imported \
    && rm /tmp/imported
# USER: kopf asks for the user's name, and a number has none, whichever the cluster chooses.
# MALLOC: what a list of thousands of objects took for a moment goes back to the node.
ENV PATH=/opt/elastic/bin:/usr/local/bin:/usr/bin:/bin \
    USER=elastic \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    MALLOC_MMAP_THRESHOLD_=131072 \
    MALLOC_TRIM_THRESHOLD_=131072
USER 65532:65532
WORKDIR /
ENTRYPOINT ["elastic-operator"]
CMD ["run"]
