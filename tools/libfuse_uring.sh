#!/bin/sh
# Builds a libfuse that speaks to the kernel over io_uring (3.18 or newer) into the folder that is given: from Debian's
# own sources, of whichever newer suite has one, since Debian 12 has 3.14. For the compiled modules alone: it is linked
# into them, and nothing of the system changes but for the packages that the build needs.
set -eu
prefix=$1
suites=${SUITES:-"forky sid"}

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "$0: it takes Debian's sources by apt-get, as root; or use a libfuse >= 3.18 in $prefix" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq install --yes --no-install-recommends gcc pkg-config meson ninja-build liburing-dev libnuma-dev dpkg-dev \
    >/dev/null

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work" # apt fetches as a user of its own
# the mirror that this machine uses already, asked for sources alone, in lists of their own
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | head -1)
mkdir -p "$work/lists/partial" "$work/parts"
for suite in $suites; do
    echo "deb-src $mirror $suite main" >>"$work/sources.list"
done
with="-o Dir::Etc::SourceList=$work/sources.list -o Dir::Etc::SourceParts=$work/parts -o Dir::State::Lists=$work/lists"
# shellcheck disable=SC2086 # words
apt-get -qq $with update
cd "$work"
# shellcheck disable=SC2086
apt-get -qq $with source fuse3 >/dev/null 2>&1
cd fuse3-*

echo "libfuse $(basename "$PWD" | cut -d- -f2) of Debian's sources, into $prefix"
# Static, for it stands beside the system's libfuse in one process; without the helper programs, which the system has.
meson setup build --prefix="$prefix" --libdir=lib --buildtype=release --default-library=static \
    -Dexamples=false -Dtests=false -Dutils=false -Duseroot=false -Ddisable-libc-symbol-version=true >"$work/log" 2>&1 &&
    ninja -C build install >>"$work/log" 2>&1 || { tail -20 "$work/log" >&2; exit 1; }
grep -q '"liburing linking and SQE128 support".* YES' "$work/log" || {
    echo "$0: it was built without io_uring" >&2
    rm -rf "$prefix"
    exit 1
}
