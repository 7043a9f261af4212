# flashfs in a container. What needs no mount (replay, sweep, check, dump, fsck, crash) runs as it is:
#   docker build -t flashfs . && docker run --rm flashfs replay zipf:ops=100k,write=0.7 --ftl pagemap,slimftl
# A mount needs the host's FUSE:
#   docker run --rm -it --device /dev/fuse --cap-add SYS_ADMIN --security-opt apparmor=unconfined \
#     -v "$PWD:/data" --entrypoint bash flashfs

FROM debian:12-slim AS build
RUN apt-get update && apt-get install --yes --no-install-recommends \
    g++ gcc libc6-dev libfuse3-dev libxxhash-dev pkg-config python3-dev python3-venv
RUN python3 -m venv /opt/flashfs
COPY . /src
RUN /opt/flashfs/bin/pip install --no-cache-dir /src

FROM debian:12-slim
RUN apt-get update && apt-get install --yes --no-install-recommends fuse3 mount python3 \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/flashfs /opt/flashfs
ENV PATH=/opt/flashfs/bin:$PATH
WORKDIR /data
ENTRYPOINT ["flashfs"]
CMD ["--help"]
