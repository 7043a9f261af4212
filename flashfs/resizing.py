"""Resizing: another exported size for an image, on the same chip with more or less over-provisioning.

Every scheme sizes its tables, checkpoints and reserve by the exported size, and some place pages by it. So a new chip
with the same blocks and wear is created next to the image, bound to the same FTL, and the host's data is copied to it;
then it takes the image's name. The image does not change before that.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import nandimg
from flashfs import fs_end
from flashfs.device import Device, refusal
from flashfs.engine.device.lifetime_counters import AT, Life
from flashfs.engine.device.metalog import newest_slot, sealed
from flashfs.errors import BindError, FlashfsError, UncorrectableError, UsageError
from flashfs.ftl import scheme
from flashfs.sizing.op import TRIED_PAGES
from flashfs.text import shown, shown_down
from nandimg.header import WRITE_BUFFER
from nandimg.image import is_at

CHUNK = 1 << 20  #: bytes copied at once
GROWN_BAD = 2  #: the chip's health of a block that has gone bad in use
CHECKSUM_END = 8  #: of a boot slot: magic and checksum, SPEC.md section 7


@dataclass(frozen=True, slots=True)
class Resized:
    """Sizes in bytes, as the host sees them; ``copied``: bytes that were copied; ``op``: the new over-provisioning."""

    before: int
    after: int
    copied: int
    op: float


def resize(path: str | Path, size: int, *, ftl: str | None = None, trust: bool = False) -> Resized:
    """Export ``size`` bytes of the image. UsageError for an invalid size or one that would cut off data, BindError if
    the chip has too few blocks for it, ImageError if the image is in use.

    An image that was not unmounted is recovered first. UUID, erase counts, bad blocks and lifetime counters stay; holes
    stay holes. The host's disk needs room for a second copy of the data. If this process dies, the image is unchanged,
    and a file ``.NAME.*.resize`` may be left, which can be removed.
    """
    path = Path(path).resolve()
    with _held(path, ftl, trust) as old:
        before = old.header.geometry
        lpas = _lpas(size, before)
        if lpas >= before.pages:
            flash = f"{path} has {shown(before.physical_bytes)} of flash, and its FTL needs some of that"
            raise UsageError(f"size {shown(size)}: {_most_of(path, old, lpas) or flash}")
        saved = sum(region.bytes for region in old.header.regions if region.name == WRITE_BUFFER)
        _require_one_name(path)
        geometry = replace(before, lpas=lpas, nvram_bytes=saved)  # binding adds what the scheme asks for
        _nothing_behind(path, old.device, size)
        if lpas == before.lpas:
            return Resized(size, size, 0, before.op)
        try:
            _require_blocks(old, geometry)
            with _made_beside(path, old, geometry) as made:
                copied = _written_again(old.device, made) if old.device is not None else 0
        except BindError as error:
            raise BindError(f"size {shown(size)}: {_most_of(path, old, lpas) or error}") from None
        return Resized(before.logical_bytes, size, copied, geometry.op)


@dataclass(frozen=True, slots=True)
class _Old:
    """The old image; ``device`` is None for a blank one."""

    header: nandimg.Header
    chip: Any
    device: Device | None


@contextmanager
def _held(path: Path, ftl: str | None, trust: bool) -> Iterator[_Old]:
    """The image, opened read-only: meanwhile no other process can open or resize it."""
    if nandimg.inspect(path).ftl:
        with Device.open(path, ftl=ftl, trust=trust, readonly=True, alone=True) as device:
            yield _Old(nandimg.inspect(path), device.nand, device)
    else:
        with closing(nandimg.open_image(path, readonly=True, alone=True)) as image:
            yield _Old(image.header, image.chip, None)


def _require_one_name(path: Path) -> None:
    """UsageError for a file with several names (hard links): the others would keep the old chip."""
    names = path.stat().st_nlink
    if names > 1:
        raise UsageError(f"{path}: its file has {names} names (hard links), and the others would keep the old chip; "
                         "leave only one")


def _lpas(size: int, old: nandimg.Geometry) -> int:
    if size < old.page_bytes or size % old.page_bytes:
        raise UsageError(f"size {size}: use a multiple of the page, {old.page_bytes} bytes")
    return size // old.page_bytes


def _most_of(path: Path, old: _Old, asked: int) -> str:
    """How much of the chip the FTL can export, in words; "" if that is at least the ``asked`` pages, or the chip is too
    large to be tried, or has no FTL yet."""
    geometry = replace(old.header.geometry, lpas=1, blocks=_healthy_blocks(old))
    if old.device is None or geometry.pages > TRIED_PAGES:
        return ""
    low, high = 0, geometry.pages
    while high - low > 1:
        middle = (low + high) // 2
        if refusal(old.header.ftl, replace(geometry, lpas=middle), _options(old)) is None:
            low = middle
        else:
            high = middle
    flash, most = shown(geometry.physical_bytes), shown_down(low * geometry.page_bytes)
    flash = f"{flash} of flash" if geometry.blocks == old.header.geometry.blocks else f"{flash} of flash in good blocks"
    return "" if low >= asked else f"{path} has {flash}, of which {old.header.ftl} can export {most} at most"


def _healthy_blocks(old: _Old) -> int:
    """Blocks of the chip without as many as have gone bad in use, in whole rows over its dies."""
    geometry = old.header.geometry
    rows = -(-int(old.chip.count_health(GROWN_BAD)) // geometry.dies)
    return max(geometry.dies, geometry.blocks - rows * geometry.dies)


def _require_blocks(old: _Old, geometry: nandimg.Geometry) -> None:
    """BindError if the image would grow beyond what its healthy blocks hold. What it exports now may be more than that:
    an image in use is not refused."""
    blocks = _healthy_blocks(old)
    if old.device is None or blocks == geometry.blocks or geometry.lpas <= old.header.geometry.lpas:
        return
    lost = f"{old.chip.count_health(GROWN_BAD)} blocks of it have gone bad"
    if geometry.lpas >= blocks * geometry.pages_per_block:
        raise BindError(f"{lost}, and the others hold less")
    error = refusal(old.header.ftl, replace(geometry, blocks=blocks), _options(old))
    if error is not None:
        raise BindError(f"{lost}: {error}")


def _nothing_behind(path: Path, device: Device | None, size: int) -> None:
    """UsageError if there is data beyond the new end of the device, or a file system ends beyond it."""
    if device is None or size >= device.size:
        return
    found = fs_end.end_of(lambda at, n: device.read(at, min(n, device.size - at)) if at < device.size else b"")
    if found is not None and size < found.size <= device.size:
        raise UsageError(f"{path}: {shown(size)} would cut off the {found.name} in it, which takes "
                         f"{shown(found.size)}: {fs_end.smaller(found)}")  # fmt: skip
    at = device.extent(size, mapped=True)
    if at < device.size:
        raise UsageError(f"{path}: {shown(size)} would cut off what is written at byte {at}: make the file system "
                         "smaller, and discard the rest (blkdiscard)")  # fmt: skip


@contextmanager
def _made_beside(path: Path, old: _Old, geometry: nandimg.Geometry) -> Iterator[Path]:
    """A blank chip like the old one, to be filled; it replaces the image at the end, or is removed after an error."""
    made = path.with_name(f".{path.name}.{secrets.token_hex(4)}.resize")

    def worn(chip: nandimg.Chip) -> nandimg.Chip:
        for block in range(geometry.blocks):
            chip.used_before(block, old.chip.erase_count(block), old.chip.block_health(block))
        return chip

    try:
        nandimg.create(
            made, geometry, old.header.backend, uuid=old.header.uuid, tables=old.header.tables
        )
        with closing(nandimg.open_image(made)) as blank:  # what is derived when it is bound depends on the bad blocks
            worn(blank.chip)
        # Binding changes the layout, and formatting opens the first blocks: so the wear is copied once more in between.
        if old.device is not None:
            try:
                with Device.open(made, ftl=old.header.ftl, options=_options(old), front=worn, trust=True):
                    pass
            except BindError as error:
                raise BindError(str(error).replace(str(made), str(path))) from None
        yield made
        if old.device is not None:
            _keep_life(old.device, made)
        at = path.stat()
        os.chown(made, at.st_uid, at.st_gid)
        made.chmod(at.st_mode & 0o7777)
        _durable(made, os.O_RDWR)
        if not is_at(old.chip.fileno(), path):
            raise UsageError(f"{path}: another file has this name since the resize began: nothing was changed")
        made.replace(path)
        _durable(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    finally:
        made.unlink(missing_ok=True)


def _options(old: _Old) -> dict[str, str]:
    """The options of the old image, without those that were derived from its size."""
    options = dict(old.header.options or {})
    if old.device is not None:
        of, ssd, now = scheme(old.header.ftl), old.device.ssd, dict(old.device.options)
        for name in of.derive(ssd, now):
            # A block that has gone bad did so before the image was bound (an earlier resize), or after.
            if any(options.get(name) == of.derive(one, {**now, name: 0}).get(name) for one in (ssd, _AsBound(ssd))):
                options.pop(name, None)
    return {name: str(value) for name, value in options.items()}


class _AsBound:
    """A device as it was when its image was bound: what was derived then did not know of blocks that went bad since."""

    def __init__(self, ssd: Any) -> None:
        self._ssd = ssd
        self.nand = _NandAsBound(ssd.nand)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ssd, name)


class _NandAsBound:
    def __init__(self, nand: Any) -> None:
        self._nand = nand

    def block_health(self, block: int) -> int:
        health = self._nand.block_health(block)
        return 0 if health == GROWN_BAD else int(health)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._nand, name)


def _written_again(old: Device, made: Path) -> int:
    copied = 0
    with Device.open(made, ftl=old.ftl, trust=True) as new:
        new.ssd.count_mounts(old.ssd.mounts)
        end = min(old.size, new.size)
        at = old.extent(0, mapped=True)
        while at < end:
            stop = min(end, at + CHUNK, old.extent(at, mapped=False))
            new.write(at, _read(old, at, stop - at))
            copied += stop - at
            at = old.extent(stop, mapped=True) if stop < end else end
        new.flush()
    return copied


def _read(old: Device, offset: int, n: int) -> bytes:
    try:
        return bytes(old.read(offset, n))
    except UncorrectableError as error:
        raise FlashfsError(f"{old.path}: {error}: nothing was changed; mount it, and write or discard that page "
                           f"(blkdiscard), in bytes {offset} to {offset + n - 1}") from None  # fmt: skip


def _keep_life(old: Device, made: Path) -> None:
    """Continue the lifetime counters: the programs of this copy are added, and an unclean end that it began with."""
    before = Life.of(newest_slot(old.nand))
    with closing(nandimg.open_image(made)) as image:
        raw = newest_slot(image.chip)
        if raw is None:
            raise FlashfsError(f"{made}: there is no checkpoint")
        slot = [image.chip.boot_slot(0), image.chip.boot_slot(1)].index(raw)
        now = Life.of(raw)
        whole = replace(
            now, host_writes=before.host_writes, programs=before.programs + now.programs,
            unsafe_shutdowns=before.unsafe_shutdowns + (not old.recovery.clean),
        )  # fmt: skip
        image.chip.write_boot_slot(slot, sealed(raw[:4] + bytes(4) + raw[CHECKSUM_END:AT] + whole.pack()))


def _durable(path: Path, flags: int) -> None:
    fd = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
