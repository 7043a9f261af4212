#!/bin/sh
# Installs what the project needs of Debian, when something is missing and we may. Says what to install when we may not.
#   system_packages.sh       to build, to mount, and for `make demo`
#   system_packages.sh dev   for tests, benchmarks and the site as well
set -eu
PATH="$PATH:/usr/sbin:/sbin"

missing=""
need() { # need PACKAGE COMMAND...: the package, unless the command succeeds
    package=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}

need gcc command -v gcc
need g++ command -v g++
need make command -v make
need ccache command -v ccache
need pkg-config command -v pkg-config
need libfuse3-dev pkg-config --exists fuse3
need libxxhash-dev pkg-config --exists libxxhash
need fuse3 command -v fusermount3
need util-linux command -v losetup
need mount command -v mount
need e2fsprogs command -v mkfs.ext4
need python3 command -v "${PYTHON:-python3}"
need python3-venv "${PYTHON:-python3}" -c 'import ensurepip'
need python3-dev "${PYTHON:-python3}" -c \
    'import pathlib, sys, sysconfig; sys.exit(not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists())'

if [ "${1:-}" = dev ]; then
    need xfsprogs command -v mkfs.xfs
    need btrfs-progs command -v mkfs.btrfs
    need fio command -v fio
    need fdisk command -v sfdisk
    need fuse2fs command -v fuse2fs
    need nbdkit command -v nbdkit
    need nbdkit-plugin-dev pkg-config --exists nbdkit
    need libnbd-bin command -v nbdinfo
    need qemu-utils command -v qemu-img
    need chromium command -v chromium # the HTML page is tested in a browser
    need stress-ng command -v stress-ng
    need rocksdb-tools command -v db_bench
fi

[ -n "$missing" ] || exit 0
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "missing on this machine:$missing" >&2
    echo "on Debian, as root: apt-get install$missing" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
# shellcheck disable=SC2086 # one word a package
apt-get -qq install --yes --no-install-recommends $missing
