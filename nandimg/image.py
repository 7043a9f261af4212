"""The image file: its lock and its disk blocks; creating, opening, binding and upgrading an image."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
import uuid as uuids
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nandimg._chip import Chip
from nandimg.errors import ImageError, InUseError, NoRoomError
from nandimg.geometry import Geometry
from nandimg.header import (
    BACKENDS,
    HEADER_BYTES,
    SPARSE_TABLES,
    TABLES,
    VERSION,
    Feature,
    Header,
    Layout,
    first_regions,
    layout_of,
    mend_copies,
    pack,
    read_header,
    write_header,
)

__all__ = [
    "BACKENDS", "HEADER_BYTES", "VERSION", "Header", "Image", "Layout", "Upgrade", "create", "inspect", "layout_of",
    "memory_image", "open_image",
]  # fmt: skip
FEATURES = (SPARSE_TABLES.name,)  #: the chip's own features ("nandimg.what") that this library knows

DIRECTORY = "a directory, not a regular file"
CHUNK = 1 << 20  #: bytes that are read or written at a time
KEEP_SIZE, PUNCH_HOLE = 1, 2  # linux/falloc.h


def _require_room(fd: int, header: Header) -> None:
    """OSError (ENOSPC) if the disk has too little room for what must be allocated, less what the file already has.
    Checked first, so that a failure neither fills up the disk nor loses anything of the file."""
    held = os.fstat(fd)
    disk = os.fstatvfs(fd)
    # a file system in memory may have no size, and then reports nothing as free
    if disk.f_blocks and header.allocated_bytes - 512 * held.st_blocks > disk.f_bfree * disk.f_frsize:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _reserve(fd: int, header: Header, path: Path, *, anew: bool = False) -> None:
    """Make the file long enough, with ``anew`` after emptying it, which waits until it is known that the file may be so
    long. The part that will be mapped gets its disk blocks now, because a store to a mapped page on a full disk kills
    the process. NoRoomError if that fails."""
    held = os.fstat(fd)
    try:
        _require_room(fd, header)
        if anew:
            os.ftruncate(fd, max(held.st_size, header.layout.end))
            os.ftruncate(fd, 0)
        if anew or held.st_size < header.layout.end:  # a longer file is not truncated
            os.ftruncate(fd, header.layout.end)
        os.posix_fallocate(fd, 0, header.allocated_bytes)
        if not anew and os.fstat(fd).st_size == held.st_size:  # the contents did not change: keep the times
            with suppress(PermissionError):
                os.utime(fd, ns=(held.st_atime_ns, held.st_mtime_ns))
    except (OSError, OverflowError) as error:
        code = (error.errno if isinstance(error, OSError) else None) or errno.EFBIG
        need = header.allocated_bytes
        why = f"{os.strerror(code)}; the image's tables need {max(1, need >> 10):,} KiB on the disk"
        if code == errno.EFBIG:
            why = (
                f"the image is {header.layout.end / 2**40:.2f} TiB long (sparse), more than its file system takes in "
                "one file; use a smaller chip, or another file system (XFS)"
            )
        raise NoRoomError(f"{path}: {why}", code, need) from None


def _empty(fd: int, start: int) -> None:
    """Zeros from ``start`` on, as a hole where the file system has holes. The length stays at every moment: a file that
    is too short for its header is no image."""
    end = os.fstat(fd).st_size
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    if libc.fallocate(fd, PUNCH_HOLE | KEEP_SIZE, start, end - start) == 0:
        return
    if ctypes.get_errno() not in (errno.EOPNOTSUPP, errno.ENOSYS):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    for at in range(start, end, CHUNK):
        os.pwrite(fd, bytes(min(CHUNK, end - at)), at)


def _holds_data(fd: int, start: int) -> bool:
    """Whether the file has anything but zeros from ``start`` on. Holes are skipped."""
    end = os.fstat(fd).st_size
    at = start
    while at < end:
        try:
            at = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return False
            raise
        stop = os.lseek(fd, at, os.SEEK_HOLE)
        while at < stop:
            piece = os.pread(fd, min(CHUNK, stop - at), at)
            if piece.count(0) != len(piece):
                return True
            at += len(piece) or stop - at
    return False


def create(
    path: str | Path, geometry: Geometry, backend: str = "file", force: bool = False, *, uuid: uuids.UUID | None = None,
    tables: str = "reserved",
) -> Header:  # fmt: skip
    """Create a blank chip, with a new UUID unless one is given. ImageError if the file exists, unless ``force``, and if
    it cannot be created. ``tables``: page records get their disk blocks all at once when the chip is bound
    ("reserved"), or with their pages ("sparse"): a page program then fails with ENOSPC if the disk is full, as it does
    if there is no room for its data."""
    path = Path(path)
    if backend not in BACKENDS:
        raise ImageError(f"backend {backend!r}: use {' or '.join(BACKENDS)}")
    if tables not in TABLES:
        raise ImageError(f"tables {tables!r}: use {' or '.join(TABLES)}")
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | (0 if force else os.O_EXCL)
    try:
        fd = os.open(path, flags, 0o600)
    except FileExistsError:
        raise ImageError(f"{path}: exists already; use another name, or --force to overwrite it") from None
    except OSError as error:
        raise ImageError(f"{path}: {why_not(path, error)}") from None
    header = Header(
        geometry, backend, uuid or uuids.uuid4(), options={}, regions=first_regions(geometry),
        features=(SPARSE_TABLES,) if tables == "sparse" else (),
    )  # fmt: skip
    try:
        _require_file(fd, path)
        if not force:
            os.fchmod(fd, 0o600)  # whatever the umask: only this user's daemon opens it again
        _lock(fd, path, fcntl.LOCK_EX)
        if not is_at(fd, path):
            raise ImageError(f"{path}: another file has taken its place meanwhile; try again")
        _reserve(fd, header, path, anew=True)
        write_header(fd, header)
    except BaseException:
        if not force and is_at(fd, path):
            path.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)
    return header


def why_not(path: Path, error: OSError) -> str:
    """In words, why a file at ``path`` cannot be opened or created."""
    if error.errno == errno.EISDIR:
        return DIRECTORY
    if error.errno == errno.ENOENT and not path.parent.exists():
        return f"there is no directory {path.parent}"
    return error.strerror or str(error)


def is_at(fd: int, path: Path) -> bool:
    """Whether the open file is the one that has this name now. A lock is on the file, not on its name: `flashfs resize`
    gives an image's name to another file."""
    mine = os.fstat(fd)
    try:
        named = path.stat()
    except OSError:
        return False
    return (mine.st_dev, mine.st_ino) == (named.st_dev, named.st_ino)


def open_locked(path: Path, *, readonly: bool, kind: int) -> int:
    """Open and lock the file that has this name once it is locked; ImageError if it cannot be opened or locked."""
    while True:
        fd = _open_fd(path, readonly)
        try:
            _lock(fd, path, kind)
            if is_at(fd, path):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


@contextmanager
def at_rest(path: Path) -> Iterator[int]:
    """A whole image, open for reading: nobody has it open to change it, or gets it meanwhile. ImageError if it is in
    use, or not whole."""
    fd = open_locked(path, readonly=True, kind=fcntl.LOCK_SH)
    try:
        header = read_header(fd, path)[0]
        require_known(header, path, os.fstat(fd).st_size, readonly=False)
        yield fd
    finally:
        os.close(fd)


def _lock(fd: int, path: Path, kind: int) -> None:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise ImageError(f"{path}: cannot lock: {error.strerror}") from None
        raise InUseError(path, holder(os.fstat(fd))) from None


def holder(about: os.stat_result) -> int | None:
    """The pid of the process that has the file locked, None if unknown. The kernel lists device and inode; on some file
    systems (btrfs) the device differs from that of stat(2), so a match of the inode alone is used if there is no
    better one."""
    device, inode = f"{os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x}", str(about.st_ino)
    found: dict[bool, int] = {}
    try:
        for line in Path("/proc/locks").read_text().splitlines():
            parts = line.split()
            if len(parts) > 5 and parts[1] == "FLOCK" and parts[5].rpartition(":")[2] == inode:
                found.setdefault(parts[5].rpartition(":")[0] == device, int(parts[4]))
    except OSError:
        pass
    return found.get(True, found.get(False)) or None  # 0: in another pid namespace


def _open_fd(path: Path, readonly: bool) -> int:
    try:
        # without O_NONBLOCK, opening a pipe would block
        fd = os.open(path, (os.O_RDONLY if readonly else os.O_RDWR) | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        # no hint for a missing device, which cannot be created, nor for a reader, which needs an existing image
        hint = "" if readonly or Path("/dev") in path.parents else f"; `flashfs create {path}` makes an image"
        raise ImageError(f"{path}: no such file{hint}") from None
    except OSError as error:
        raise ImageError(f"{path}: {why_not(path, error)}") from None
    try:
        _require_file(fd, path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _require_file(fd: int, path: Path) -> None:
    """ImageError unless it is a regular file."""
    if stat.S_ISDIR(os.fstat(fd).st_mode):
        raise ImageError(f"{path}: {DIRECTORY}")
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise ImageError(f"{path}: not a regular file")


def inspect(path: str | Path) -> Header:
    """Read the header alone, without a lock. ImageError if the file cannot be opened, is not a regular file, or has no
    valid header, or if a newer program wrote it last. Whether the rest of the image is there is not checked."""
    fd = _open_fd(Path(path), readonly=True)
    try:
        return read_header(fd, Path(path))[0]
    finally:
        os.close(fd)


@dataclass(frozen=True, slots=True)
class Upgrade:
    """What an upgrade found and did: versions, the names of the features that it added, and whether one copy of the
    header differed from the other and was repaired."""

    before: int
    after: int
    added: tuple[str, ...]
    mended: bool

    @property
    def changed(self) -> bool:
        return bool(self.before != self.after or self.added or self.mended)


def _merged(features: Collection[Feature], more: Collection[Feature]) -> tuple[Feature, ...]:
    """Both, without duplicates, sorted by name."""
    by_name = {feature.name: feature for feature in (*features, *more)}
    return tuple(by_name[name] for name in sorted(by_name))


@dataclass(slots=True)
class Image:
    """An open, locked image: its header and its chip."""

    path: Path | None
    header: Header
    chip: Chip
    mended: bool = False  #: one copy of the header differed from the other, and was repaired
    blank: bytes | None = None  #: if bound since it was opened: the old bytes before the NVRAM, less trailing zeros
    _blank_end: int = 0  # ... and where the NVRAM began

    def bound(
        self, ftl: str, options: dict[str, Any], oob_used: int, features: Collection[Feature] = (),
        nvram: dict[str, int] | None = None,
    ) -> Header:  # fmt: skip
        """The header that ``bind`` would write; ImageError if it would refuse to."""
        old = self.header
        if old.ftl:
            raise ImageError(f"{self.path}: bound to {old.ftl} already")
        if oob_used > old.geometry.oob_bytes:
            raise ImageError(
                f"{self.path}: {ftl} needs {oob_used} bytes of OOB per page: this chip has {old.geometry.oob_bytes}"
            )
        header = replace(
            old.with_regions(nvram or {}), ftl=ftl, options=options, oob_used=oob_used, generation=old.generation + 1,
            version=VERSION, features=_merged(old.features, features),
        )  # fmt: skip
        pack(header)
        return header

    def bind(
        self, ftl: str, options: dict[str, Any], oob_used: int, features: Collection[Feature] = (),
        nvram: dict[str, int] | None = None,
    ) -> None:  # fmt: skip
        """Bind a blank image to a scheme that keeps ``oob_used`` bytes of OOB per page, and the regions ``nvram``
        ({name: bytes}) of NVRAM. The layout depends on that, so the chip is reopened. ImageError if it is bound already
        or was ever written. The image then has the newest version."""
        header, old = self.bound(ftl, options, oob_used, features, nvram), self.header
        if self.path is not None and _holds_data(self.chip_fd(), old.layout.nvram_at):
            raise ImageError(f"{self.path}: its header says that it is blank, and there are pages in it; "
                             f"`flashfs create --force {self.path}` makes it blank")  # fmt: skip
        bad = [b for b in range(old.geometry.blocks) if self.chip.block_health(b)]
        if self.path is None:
            self.chip.close()
            self.header, self.chip = header, _memory_chip(header)
        else:
            fd = os.dup(self.chip_fd())
            self.chip.close()
            try:
                self.blank, self._blank_end = os.pread(fd, old.layout.nvram_at, 0).rstrip(b"\0"), old.layout.nvram_at
                _reserve(fd, header, self.path)
                write_header(fd, header)
            except BaseException:
                os.close(fd)  # and with it the lock
                raise
            self.header, self.chip = header, _chip(header, fd, self.path)
        for block in bad:
            self.chip.mark_factory_bad(block)

    def give_back(self) -> bool:
        """Undo a ``bind`` since the image was opened, and all writes after it: the file is blank again, and the chip is
        closed. False if there was no ``bind``. The header is written last, so that a crash meanwhile leaves a bound
        image without pages."""
        blank, self.blank = self.blank, None
        if blank is None:
            return False
        fd = os.dup(self.chip_fd())
        self.chip.close()
        try:
            # The block table first, which has the bad blocks: a crash may leave the image bound.
            blank = blank.ljust(max(self._blank_end, 2 * HEADER_BYTES), b"\0")
            os.pwrite(fd, blank[2 * HEADER_BYTES :], 2 * HEADER_BYTES)
            os.fsync(fd)
            _empty(fd, len(blank))
            os.fsync(fd)
            for at in (0, HEADER_BYTES):
                os.pwrite(fd, blank[at : at + HEADER_BYTES], at)
                os.fdatasync(fd)
            self.header = read_header(fd, Path(str(self.path)))[0]
            os.posix_fallocate(fd, 0, self.header.allocated_bytes)
        finally:
            os.close(fd)
        return True

    def upgrade(self, features: Collection[Feature] = ()) -> Upgrade:
        """Upgrade the image to the newest version, with these features added. Only the header changes; a power cut or
        the host's death leaves the image as it was or upgraded. An image that is up to date is not changed."""
        old = self.header
        merged = _merged(old.features, features)
        added = tuple(one.name for one in merged if one not in old.features)
        if old.version != VERSION or added:
            header = replace(old, version=VERSION, features=merged, generation=old.generation + 1)
            write_header(self.chip_fd(), header)
            self.header = header
        return Upgrade(old.version, VERSION, added, self.mended)

    def chip_fd(self) -> int:
        return self.chip.fileno()

    def close(self) -> None:
        self.chip.close()


def require_known(header: Header, path: Path, size: int, *, readonly: bool) -> None:
    """ImageError if the file is shorter than its header says, or has a feature of the chip that this library does not
    know. The caller that runs a scheme checks the other features (refuse_unknown)."""
    others = [feature.name for feature in header.features if not feature.name.startswith("nandimg.")]
    header.refuse_unknown(path, (*FEATURES, *others), readonly=readonly)
    if size < header.layout.end:
        raise ImageError(f"{path}: size is {size} bytes: its geometry needs {header.layout.end}; it was truncated")


def open_image(path: str | Path, readonly: bool = False, *, held: bool = False, alone: bool = False) -> Image:
    """Open and lock an image (shared when read-only, unless ``alone``). ImageError names the file and the field at
    fault.

    ``held``: this process already has the lock, and the file does not change while the image is open; read-only opening
    only, else ValueError."""
    if held and not readonly:
        raise ValueError("an image that is held already may be opened read-only alone")
    path = Path(path)
    kind = fcntl.LOCK_SH if readonly and not alone else fcntl.LOCK_EX
    fd = _open_fd(path, readonly) if held else open_locked(path, readonly=readonly, kind=kind)
    try:
        header, counts = read_header(fd, path)
        require_known(header, path, os.fstat(fd).st_size, readonly=readonly)
        if not readonly:
            _reserve(fd, header, path)
    except BaseException:
        os.close(fd)
        raise
    chip = _chip(header, fd, path, readonly)  # closes it, also if it fails
    if held:  # the process that serves the image has locked its memory, and these mappings are as large as the image
        chip.stay_pageable()
    block = chip.block_table_problem()
    if block is not None:
        chip.close()
        raise ImageError(f"{path}: block table: the entry of block {block} fails its check")
    return Image(path, header, chip, not readonly and mend_copies(fd, counts))


def _chip(header: Header, fd: int, path: Path, readonly: bool = False) -> Chip:
    return Chip(header.geometry, header.layout, fd, path, readonly, sparse_tables=header.tables == "sparse")


def _memory_chip(header: Header) -> Chip:
    oob_bytes = header.oob_used or header.geometry.oob_bytes
    layout = layout_of(
        header.geometry, header.backend, oob_bytes, nvram=header.regions, unsummed=header.backend == "meta"
    )
    fd = os.memfd_create("nandimg", os.MFD_CLOEXEC)
    os.ftruncate(fd, layout.end)
    return Chip(header.geometry, layout, fd)


def memory_image(geometry: Geometry, backend: str = "file", factory_bad: tuple[int, ...] = ()) -> Image:
    """A blank chip in the memory of this process, for replay and for tests. ``factory_bad``: numbers of bad blocks.
    ImageError for an unknown backend, or a number that no block has; OSError or MemoryError if there is not enough
    memory."""
    if backend not in BACKENDS:
        raise ImageError(f"backend {backend!r}: use {' or '.join(BACKENDS)}")
    for block in factory_bad:
        if not 0 <= block < geometry.blocks:
            raise ImageError(f"factory_bad: block {block}: the chip has {geometry.blocks}, from 0 on")
    header = Header(geometry, backend, uuids.UUID(int=0), options={}, regions=first_regions(geometry))
    image = Image(None, header, _memory_chip(header))
    for block in factory_bad:
        image.chip.mark_factory_bad(block)
    return image
