"""Finds the compiled modules and the data files to install; the rest of the project's metadata is in pyproject.toml.

Variables of the environment:
    FLASHFS_ONLY     paths of .pyx files: build these alone
    FLASHFS_BARE=1   no compiled modules: an editable install would compile everything again, and `make setup` builds
    FLASHFS_TRACE=1  line tracing for coverage of the compiled modules
    FLASHFS_LIBFUSE  the prefix of a libfuse to be used in place of the system's (default: .libfuse, if it is there)
    FLASHFS_SYMBOLS=1  keep symbols and debug information, for perf and gdb
    FLASHFS_SANITIZE=address  check every memory access (`make asan`)
"""

import os
import subprocess
from collections.abc import Iterator
from copy import copy
from functools import cache
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from shutil import which
from threading import Lock

from Cython.Build import Cache, cythonize
from Cython.Build.Dependencies import create_dependency_tree
from Cython.Compiler.Errors import CompileError
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.modified import newer_group

TRACED = os.environ.get("FLASHFS_TRACE") == "1"
ONLY = os.environ.get("FLASHFS_ONLY", "").split()
BARE = os.environ.get("FLASHFS_BARE") == "1"
SANITIZE = [f"-fsanitize={what}" for what in os.environ.get("FLASHFS_SANITIZE", "").split()]
SYMBOLS = os.environ.get("FLASHFS_SYMBOLS") == "1" or bool(SANITIZE)

DIRECTIVES = {
    "language_level": "3",
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    "embedsignature": True,
    "freethreading_compatible": False,
    "linetrace": TRACED,
}
#: Cython's output mixes signed and unsigned, and has functions that a module does not call
NOISE = ["-Wno-unused-function", "-Wno-sign-compare"]
COMPILE = ["-fno-strict-aliasing", *NOISE, *SANITIZE, *([] if SYMBOLS else ["-g0"])]
LINK = [*SANITIZE] if SYMBOLS else ["-s"]

#: the memoryview code that all modules use, compiled once instead of in each: most of the compiler's work
SHARED = "nandimg._shared"

#: cache of Cython's results: a second checkout of the same sources translates nothing
TRANSLATED = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "flashfs", "cython")
#: ccache makes paths below this folder relative, so that checkouts share results
CCACHE = {"CCACHE_BASEDIR": str(Path.cwd()), "CCACHE_NOHASHDIR": "1"}
#: a newer libfuse than the system's, if `make setup URING=1` has built it
LIBFUSE = Path(os.environ.get("FLASHFS_LIBFUSE", ".libfuse")).absolute()

#: prefix of the first line of a module that is built only if the named library is installed
OPTIONAL = "# pkg-config, or left out: "


def pkg_config(what: str, library: str) -> list[str]:
    """pkg-config's words for the compiler or linker; CalledProcessError, which ends the build, without the library."""
    path = os.pathsep.join([str(LIBFUSE / "lib/pkgconfig"), *filter(None, [os.environ.get("PKG_CONFIG_PATH")])])
    return subprocess.run(
        ["pkg-config", what, library], check=True, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PKG_CONFIG_PATH": path},
    ).stdout.split()  # fmt: skip


def said(source: Path) -> Iterator[str]:
    """The comment lines at a module's top."""
    return takewhile(lambda line: line.startswith("#"), source.read_text().splitlines())


def needs(source: Path) -> str | None:
    """The library that a module names in a line ``# pkg-config: NAME`` at its top, or None."""
    names = [line.removeprefix("# pkg-config: ").strip() for line in said(source) if line.startswith("# pkg-config: ")]
    return names[0] if names else None


def optimisation(source: Path) -> str:
    """A module with ``# cold`` at its top is not time-critical: ``-O1`` compiles it in half the time. ``-O3`` takes a
    fifth longer than ``-O2``, and requests and power cuts run as fast with either."""
    return "-O1" if SANITIZE or "# cold" in said(source) else "-O2"


def is_wanted(source: Path) -> bool:
    """False if the library is missing that the module names in ``# pkg-config, or left out: NAME``."""
    first = source.read_text().partition("\n")[0]
    library = first.removeprefix(OPTIONAL).strip() if first.startswith(OPTIONAL) else None
    if library is None or which("pkg-config") is None:  # without pkg-config the module is left out
        return library is None
    return subprocess.run(["pkg-config", "--exists", library]).returncode == 0


def extension(source: Path) -> Extension:
    """A module is named by its path. The comments at its top say what else it needs: ``# distutils:`` for its language
    or more C sources, ``# pkg-config:`` for a library of the system, which is looked up when the module is built,
    ``# cold`` for little optimisation."""
    return Extension(
        ".".join(source.with_suffix("").parts),
        [str(source)],
        include_dirs=["nandimg", str(source.parent)],
        depends=[str(header) for folder in (Path("nandimg"), source.parent) for header in sorted(folder.glob("*.h"))],
        extra_compile_args=[optimisation(source), *COMPILE],
        extra_link_args=[*LINK],
        define_macros=[("CYTHON_TRACE_NOGIL", "1")] if TRACED else [],
    )


def shared() -> list[Extension]:
    """The module of shared code that Cython makes for the others; it has no .pyx."""
    if BARE or ONLY:
        return []
    source = SHARED.replace(".", "/") + ".c"
    return [Extension(SHARED, [source], extra_compile_args=["-O1", *COMPILE], extra_link_args=[*LINK])]


def kept() -> str | None:
    """The folder of Cython's results; None if it cannot be written."""
    try:
        TRANSLATED.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return str(TRANSLATED) if os.access(TRANSLATED, os.W_OK) else None


@cache
def fingerprint(path: str) -> str:
    """Of a file, for the name of a result: a .venv is in another folder in each checkout, and Cython's own files are in
    that, so of a file that is not given by a path of the checkout only the name and what is in it count."""
    name = Path(path).name if Path(path).is_absolute() else os.path.normpath(path)
    return sha256(name.encode() + b"\n" + Path(path).read_bytes()).hexdigest()


Cache.file_hash = fingerprint


def sources() -> list[Path]:
    """Every .pyx in the two packages, or those in FLASHFS_ONLY."""
    if BARE:
        return []
    found = [source for package in ("nandimg", "flashfs") for source in sorted(Path(package).rglob("*.pyx"))]
    return [source for source in found if (not ONLY or str(source) in ONLY) and is_wanted(source)]


class Build(build_ext):
    """Translates and compiles each module in turn, and prints a line for it; modules that are up to date are skipped.
    While one thread compiles, another translates. Cython runs only when something is built: a source archive is made
    without it."""

    def run(self) -> None:
        self.translating = Lock()  # Cython is not thread-safe
        self.begun = 0
        self.stale: list[Extension] = []
        super().run()

    def build_extensions(self) -> None:
        if which("ccache"):
            os.environ.update(CCACHE)
            for name in ("compiler_so", "compiler_so_cxx"):
                if command := getattr(self.compiler, name, None):
                    setattr(self.compiler, name, ["ccache", *command])
        tree = create_dependency_tree(quiet=True)
        for ext in self.extensions:
            if ext.name == SHARED:
                if self.force or not Path(self.get_ext_fullpath(ext.name)).exists():
                    self.stale.append(ext)
                continue
            info = tree.distutils_info(ext.sources[0]).values
            needed = {*tree.all_dependencies(ext.sources[0]), *info.get("sources", []), *info.get("depends", [])}
            if needs(Path(ext.sources[0])):
                needed.add(str(LIBFUSE / "lib/pkgconfig/fuse3.pc"))
            ext.depends = sorted({*ext.depends, *(path for path in needed if Path(path).exists())})
            if self.force or newer_group(ext.depends, self.get_ext_fullpath(ext.name)):
                self.stale.append(ext)
        super().build_extensions()

    def build_extension(self, ext: Extension) -> None:
        if ext not in self.stale:
            return
        with self.translating:
            self.begun += 1
            print(f"[{self.begun}/{len(self.stale)}] {ext.sources[0]}", flush=True)
            self.translate(ext)
        super().build_extension(ext)

    def translate(self, ext: Extension) -> None:
        """Make C or C++ of its source, and apply the comments at the source's top."""
        source = Path(ext.sources[0])
        library = None if ext.name == SHARED else needs(source)
        try:
            made = self.translated(ext, kept())
            if not Path(made.sources[0]).exists():
                made = self.translated(ext, None)
        except CompileError:  # Cython has printed the error and its place; a traceback of setuptools adds nothing
            raise SystemExit(f"{source}: Cython does not take it; its lines above name the place") from None
        ext.sources, ext.language, ext.include_dirs = made.sources, made.language, made.include_dirs
        if library:
            ext.extra_compile_args += pkg_config("--cflags", library)
            ext.extra_link_args += [*pkg_config("--libs", library), "-Wl,--exclude-libs,ALL"]

    def translated(self, ext: Extension, cache: str | None) -> Extension:
        """Cython's cache takes a failed translation, of which it keeps no output, for a success. So the old output is
        removed first, and the caller checks that there is a new one. It writes what a module depends on into its
        output, and that into the result's name: paths of this folder alone are left out."""
        if ext.name != SHARED:
            for suffix in (".c", ".cpp"):
                Path(ext.sources[0]).with_suffix(suffix).unlink(missing_ok=True)
        source = copy(ext)
        source.depends = [path for path in ext.depends if not Path(path).is_absolute()]
        (made,) = cythonize(
            [source], compiler_directives=DIRECTIVES, quiet=True, force=ext.name != SHARED, cache=cache,
            shared_utility_qualified_name=SHARED,
        )  # fmt: skip
        return made


def data_files() -> list[tuple[str, list[str]]]:
    """[(folder, files)] that a wheel installs under the prefix besides the packages. The recordings of examples/traces
    are several times as large as everything else, and are in the source archive only."""
    return [
        (folder, [str(path) for path in sorted(Path(source).glob(pattern))])
        for folder, source, pattern in (
            ("share/doc/flashfs/examples", "examples", "*.py"),
            ("share/doc/flashfs/examples", "examples", "*.ipynb"),
            ("share/man/man1", "man", "*.1"),
            ("lib/systemd/system", "packaging", "*.service"),
        )
    ]


setup(ext_modules=[*shared(), *map(extension, sources())], cmdclass={"build_ext": Build}, data_files=data_files())
