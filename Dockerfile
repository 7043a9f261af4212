# flashfs in a container. What needs no mount (replay, sweep, check, dump, fsck, crash) runs as it is:
#   docker build -t flashfs . && docker run --rm flashfs replay zipf:ops=100k,write=0.7 --ftl pagemap,slimftl
# A mount needs the host's FUSE:
#   docker run --rm -it --device /dev/fuse --cap-add SYS_ADMIN --security-opt apparmor=unconfined \
#     -v "$PWD:/data" --entrypoint bash flashfs
# NBD needs no FUSE:
#   docker run --rm -it --network host -v "$PWD:/data" flashfs nbd ssd.img --port 10809 --foreground

FROM debian:12-slim AS build
RUN apt-get update && apt-get install --yes --no-install-recommends \
    g++ gcc libc6-dev libfuse3-dev libxxhash-dev nbdkit-plugin-dev pkg-config python3-dev python3-venv
RUN python3 -m venv /opt/flashfs
COPY . /src
RUN /opt/flashfs/bin/pip install --no-cache-dir /src

FROM debian:12-slim
# fuse3, mount: mounts. nbdkit: `flashfs nbd`. The others: file systems for `flashfs up` and `flashfs crash --workload`.
RUN apt-get update && apt-get install --yes --no-install-recommends \
    btrfs-progs e2fsprogs fuse3 mount nbdkit python3 xfsprogs \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/flashfs /opt/flashfs
ENV PATH=/opt/flashfs/bin:$PATH
WORKDIR /data
ENTRYPOINT ["flashfs"]
CMD ["--help"]
