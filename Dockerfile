# The server on a CPU: docker build -t realm-qa . (docs/serving.md says how to run it).
# Training: --build-arg EXTRAS=serve,train; on an NVIDIA GPU with --build-arg TORCH_INDEX= too, and docker run --gpus all.
FROM python:3.11.14-slim-bookworm AS build
# The compiler is for the search kernel; it stays behind in this stage. Debian keeps one version of a package: a pinned one is soon gone.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends gcc libc6-dev \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY pyproject.toml constraints.txt hatch_build.py README.md LICENSE ./
COPY docker/install.sh docker/install.sh
COPY src src
# torch's usual wheels bring the CUDA libraries, so a GPU needs no other base: the host gives the driver, through its container toolkit.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG EXTRAS=serve
# Nothing is installed into an image later, and of Arrow neither Flight nor S3 is used: 88 MB less.
RUN --mount=type=cache,target=/root/.cache/pip sh docker/install.sh /opt/realm "$EXTRAS" "$TORCH_INDEX" \
 && /opt/realm/bin/python -m pip uninstall --yes setuptools pip \
 && find /opt/realm/lib -maxdepth 4 -path '*/pyarrow/*' \( -name include -o -name tests -o -name '*flight*' -o -name '*s3*' \) -exec rm -r {} +

FROM python:3.11.14-slim-bookworm
RUN groupadd --gid 10001 realm \
 && useradd --uid 10001 --gid realm --home-dir /srv/realm --create-home --shell /usr/sbin/nologin realm
COPY --from=build /opt/realm /opt/realm
# Nothing is fetched from a model hub by itself: mount what a run needs.
ENV PATH=/opt/realm/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HF_HUB_OFFLINE=1
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
WORKDIR /srv/realm
USER 10001:10001
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s --retries=3 \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["realm"]
CMD ["serve", "/srv/realm/run", "--host", "0.0.0.0", "--allow-host", "localhost", "--token-file", "/run/secrets/realm_token"]
