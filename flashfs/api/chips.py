"""Images: making one, and opening its device."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nandimg
from flashfs.api.chip_errors import translated
from flashfs.device import Device
from flashfs.errors import UsageError
from flashfs.replay import grid


@translated
def create(
    path: str | Path,
    *,
    preset: str | None = None,
    size: str | int | None = None,
    page_size: str | int | None = None,
    pages_per_block: int | None = None,
    channels: int | None = None,
    dies: int | None = None,
    oob: int | None = None,
    op: float | None = None,
    backend: str = "file",
    tables: str = "reserved",
    force: bool = False,
) -> Path:
    """Make a blank chip in a sparse file, as `flashfs create` does, and return its path.

    ``size`` (``"256M"``; 1 GiB by default) is what the host sees, ``op`` the over-provisioning, ``preset`` a whole
    chip by name. ``backend="meta"`` keeps no user data. ``tables="sparse"``: a page's record gets its blocks on the
    host's disk when the page is programmed, not with all others when the chip is bound. UsageError for values that make
    no chip, FlashfsError if the file exists, unless ``force``.
    """
    path = Path(path)
    shape = {name: value for name, value in locals().items() if name not in ("path", "backend", "tables", "force")}
    nandimg.create(path, grid.device(grid.read(shape)), backend=backend, force=force, tables=tables)
    return path


@translated
def open(
    path: str | Path,
    *,
    ftl: str | type | None = None,
    opt: Mapping[str, Any] | None = None,
    dram: str | int | None = None,
    sync: str = "flush",
    plp: bool = False,
    readonly: bool = False,
    trust: bool = False,
) -> Device:
    """Open an image, recovering whatever state it is in; a blank one is bound to ``ftl`` (pagemap) and formatted.

        with flashfs.open("ssd.img", ftl="slimftl") as ssd:
            ssd.write(0, b"hello")
            ssd.flush()

    The end of the block writes a checkpoint; if it ends by an exception, the image is left as after a crash. ``opt``
    are options of the FTL, ``dram`` the controller's DRAM (``"64M"``), ``trust`` lets the image name the code that is
    imported. UsageError for names and options that do not exist, BindError if the FTL cannot run on the image,
    FlashfsError for a file that is no usable image. (What comes of the chip is a nandimg.ImageError as well.)
    """
    return Device.open(path, ftl=ftl, options=dict(opt or {}), dram=budget(dram), sync=sync, plp=plp,
                       readonly=readonly, trust=trust)  # fmt: skip


def budget(dram: str | int | None) -> int | None:
    """Bytes of DRAM."""
    value = grid.read({"dram": dram}).get("dram")
    if value is not None and not isinstance(value, int):
        raise UsageError(f"dram = {dram!r:.60}: use a size, as 64M")
    return value
