# The agent of a device, with torch from the package index. In the root of the sources:
#   docker build -f deploy/docker/agent.Dockerfile -t edgefed-agent .
FROM python:3.12.11-slim-bookworm

RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --create-home --home-dir /var/lib/edgefed edgefed \
    && chmod 700 /var/lib/edgefed

COPY . /usr/src/edgefed
RUN pip install --no-cache-dir -c /usr/src/edgefed/constraints.txt "/usr/src/edgefed[metrics]"

ENV EDGEFED_STATE=/var/lib/edgefed
USER edgefed
WORKDIR /var/lib/edgefed
VOLUME /var/lib/edgefed
HEALTHCHECK --interval=60s --timeout=30s --start-period=120s \
    CMD edgefed-agent status --check || exit 1
ENTRYPOINT ["edgefed-agent"]
CMD ["run"]
