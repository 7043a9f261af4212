"""flashfs: an SSD that you can mount. A NAND chip in a sparse file, a flash translation layer chosen by name.

What is for use from Python (docs/python-api.md; everything else may change):

    create(path, size=...)          a blank chip in a file
    open(path, ftl=...)             a Device on it: read, write, trim, flush, stats; a context manager
    mount(image, mountpoint)        a Mount: `disk` for Linux to use; a context manager
    replay(source, ftl=[...])       traces and workloads on FTLs, in virtual time: a data frame (a package, too)
    compare(source, ftl=[...])      the same, with a dozen columns
    sweep(spec, out)                every combination; run again, it continues
    plot(table, what)               a Picture of results, which a notebook shows
    read_trace(source)              the requests of a trace or workload as a data frame
    check(ftl), crash(ftl)          the conformance suite and power cuts on FTLs: data frames (packages, too)
    clone(image, copy)              a copy of an image that is a chip of its own
    dump(image, view), fsck(image)  what is in an image; what is broken in it
    Device, Geometry, Mount, Picture, FlashfsError, UsageError

``ftl`` is a name (`flashfs ftls` lists them), ``package.module:Class``, or the class of an FTL in Python itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flashfs import check, crash, replay
    from flashfs.api import Mount, clone, compare, create, dump, fsck, mount, plot, read_trace
    from flashfs.api import open as open
    from flashfs.device import Device
    from flashfs.errors import FlashfsError, UsageError
    from flashfs.replay.api import sweep
    from flashfs.replay.plots import Picture
    from nandimg import Geometry

__version__ = "0.1.0"
_NAMES = (
    "Device", "FlashfsError", "Geometry", "Mount", "Picture", "UsageError", "check", "clone", "compare", "crash",
    "create", "dump", "fsck", "mount", "open", "plot", "read_trace", "replay", "sweep",
)  # fmt: skip
__all__ = [  # `from flashfs import *` leaves the builtin open() alone
    "Device", "FlashfsError", "Geometry", "Mount", "Picture", "UsageError", "check", "clone", "compare", "crash",
    "create", "dump", "fsck", "mount", "plot", "read_trace", "replay", "sweep",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a name on first use: some of them take time to import."""
    found: Any
    if name in ("check", "crash", "replay"):
        from importlib import import_module

        return import_module(f"flashfs.{name}")
    if name == "sweep":
        from flashfs.replay.api import sweep as found
    elif name == "Device":
        from flashfs.device import Device as found
    elif name == "Geometry":
        from nandimg import Geometry as found
    elif name == "Picture":
        from flashfs.replay.plots import Picture as found
    elif name.endswith("Error") and name in _NAMES:
        from flashfs import errors

        found = getattr(errors, name)
    elif name in _NAMES:
        from flashfs import api

        found = getattr(api, name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*_NAMES, *(name for name in globals() if name.startswith("__"))])
