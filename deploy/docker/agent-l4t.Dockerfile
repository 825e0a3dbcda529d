# The agent of a Jetson with JetPack 6 (L4T 36), with the torch of its base image. In the root of
# the sources, on the Jetson:
#   docker build -f deploy/docker/agent-l4t.Dockerfile -t edgefed-agent .
FROM dustynv/l4t-pytorch:r36.4.0

RUN useradd --uid 10001 --groups video --create-home --home-dir /var/lib/edgefed edgefed \
    && chmod 700 /var/lib/edgefed

COPY . /usr/src/edgefed
# The versions of the base image stay: another torch would not use the GPU.
RUN pip list --format=freeze | grep -E "^(torch|torchvision|numpy)==" > /tmp/installed.txt \
    && pip install --no-cache-dir -c /tmp/installed.txt "/usr/src/edgefed[metrics]" \
    && rm /tmp/installed.txt

ENV EDGEFED_STATE=/var/lib/edgefed
USER edgefed
WORKDIR /var/lib/edgefed
VOLUME /var/lib/edgefed
HEALTHCHECK --interval=60s --timeout=30s --start-period=120s \
    CMD edgefed-agent status --check || exit 1
ENTRYPOINT ["edgefed-agent"]
CMD ["run"]
