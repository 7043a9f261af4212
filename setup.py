"""Finds the compiled modules; everything else about the project is in pyproject.toml."""

import os
import subprocess
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

TRACED = os.environ.get("FLASHFS_TRACE") == "1"  # line tracing for coverage of the compiled modules
ONLY = os.environ.get("FLASHFS_ONLY", "").split()  # paths of .pyx files: build these alone
OPTIONAL = "# pkg-config, or left out: "
BARE = os.environ.get("FLASHFS_BARE") == "1"  # an editable install would compile everything again: `make setup` builds

def pkg_config(what: str, library: str) -> list[str]:
    """The words that the compiler or the linker is to be given; the build ends here if there is no such library."""
    return subprocess.run(["pkg-config", what, library], check=True, stdout=subprocess.PIPE, text=True).stdout.split()


def needs(source: Path) -> str | None:
    """The library that a module says it needs, in a line ``# pkg-config: NAME`` at its top."""
    for line in source.read_text().splitlines():
        if not line.startswith("#"):
            return None
        if line.startswith("# pkg-config: "):
            return line.removeprefix("# pkg-config: ").strip()
    return None


def is_wanted(source: Path) -> bool:
    """Not where a library is missing that the module is about, which it says in ``# pkg-config, or left out: NAME``."""
    first = source.read_text().partition("\n")[0]
    library = first.removeprefix(OPTIONAL).strip() if first.startswith(OPTIONAL) else None
    return library is None or subprocess.run(["pkg-config", "--exists", library]).returncode == 0


def extension(source: Path) -> Extension:
    """A module is named by its place. What else it needs stands at its top: ``# distutils:`` for its language or for C
    beside it, ``# pkg-config:`` for a library of the system."""
    library = needs(source)
    return Extension(
        ".".join(source.with_suffix("").parts),
        [str(source)],
        include_dirs=["nandimg", str(source.parent)],
        depends=[str(header) for folder in (Path("nandimg"), source.parent) for header in sorted(folder.glob("*.h"))],
        extra_compile_args=["-O3", "-fno-strict-aliasing", "-Wno-unused-function"]
        + (pkg_config("--cflags", library) if library else []),
        extra_link_args=pkg_config("--libs", library) if library else [],
        define_macros=[("CYTHON_TRACE_NOGIL", "1")] if TRACED else [],
    )


def sources() -> list[Path]:
    """Every .pyx in the two packages, or those that were asked for."""
    if BARE:
        return []
    found = [source for package in ("nandimg", "flashfs") for source in sorted(Path(package).rglob("*.pyx"))]
    return [source for source in found if (not ONLY or str(source) in ONLY) and is_wanted(source)]


setup(
    ext_modules=cythonize(
        [extension(source) for source in sources()],
        compiler_directives={
            "language_level": "3",
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
            "embedsignature": True,
            "freethreading_compatible": False,
            "linetrace": TRACED,
        },
    )
)
