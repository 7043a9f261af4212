"""Declares the compiled modules; everything else about the project is in pyproject.toml."""

import os
import subprocess

from Cython.Build import cythonize
from setuptools import Extension, setup

TRACED = os.environ.get("FLASHFS_TRACE") == "1"  # line tracing for coverage of the compiled modules
BARE = os.environ.get("FLASHFS_BARE") == "1"  # an editable install would compile everything again: `make setup` builds

MODULES = [
    "nandimg._nand",
    "nandimg._chip",
    "nandimg._tears",
    "nandimg._filter",
    "nandimg._faults",
    "nandimg._menu",
    "flashfs._pool",
    "flashfs._parts",
    "flashfs._defaults",
    "flashfs._mover",
    "flashfs._wear",
    "flashfs._buffer",
    "flashfs._cache",
    "flashfs._reader",
    "flashfs._metalog",
    "flashfs._core",
    "flashfs._ranges",
    "flashfs._views",
    "flashfs._scan",
    "flashfs._recovery",
    "flashfs._fsck",
    "flashfs._block_map",
    "flashfs._bridge",
    "flashfs._bridge_map",
    "flashfs.ftl.slimftl",
    "flashfs._learn",
    "flashfs._slabs",
    "flashfs._group",
    "flashfs._segments",
    "flashfs._translation",
    "flashfs._table_pages",
    "flashfs.ftl._leaf_found",
    "flashfs.ftl.leaftl",
    "flashfs.crash._watched",
    "flashfs.fuse._late",
    "flashfs.fuse._native",
    "flashfs.replay._record",
    "flashfs.replay._player",
]

#: C of their own that modules have beside them: (compiled into them, included by them).
BESIDE = {"flashfs.replay._record": (["flashfs/replay/content_hash_avx2.c"], ["flashfs/replay/content_hash.h"])}

#: What a module needs of the system: names that pkg-config knows.
LIBRARIES = {"flashfs.fuse._late": "fuse3", "flashfs.fuse._native": "fuse3"}


def pkg_config(what: str, library: str) -> list[str]:
    """The words that the compiler or the linker is to be given; the build ends here if there is no such library."""
    return subprocess.run(["pkg-config", what, library], check=True, stdout=subprocess.PIPE, text=True).stdout.split()


def extension(name: str) -> Extension:
    sources, headers = BESIDE.get(name, ([], []))
    library = LIBRARIES.get(name)
    return Extension(
        name,
        [name.replace(".", "/") + ".pyx", *sources],
        include_dirs=["nandimg", "flashfs", "flashfs/replay"],
        depends=["nandimg/crc32c.h", "nandimg/guard.h", "nandimg/huge.h", "flashfs/ftl/md5.h", *headers],
        extra_compile_args=["-O3", "-fno-strict-aliasing", "-Wno-unused-function"]
        + (pkg_config("--cflags", library) if library else []),
        extra_link_args=pkg_config("--libs", library) if library else [],
        define_macros=[("CYTHON_TRACE_NOGIL", "1")] if TRACED else [],
    )


setup(
    ext_modules=cythonize(
        [] if BARE else [extension(name) for name in MODULES],
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
