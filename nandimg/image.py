"""The image file: its header in two copies, its layout, its lock; making, opening and binding one.

SPEC.md describes every byte; the names here are the names there.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import struct
import uuid as uuids
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from nandimg._chip import Chip, checksum
from nandimg.errors import GeometryError, ImageError
from nandimg.geometry import Geometry

MAGIC = b"NANDIMG\x00"
VERSION = 1
HEADER_BYTES = 4096
BOOT_AT = 2 * HEADER_BYTES
TABLE_AT = BOOT_AT + 4096
BACKENDS = ("file", "meta")
CHUNK = 1 << 20  #: bytes looked at at a time
OPTIONS_BYTES = 3072  #: room for the options, as JSON
_FIXED = struct.Struct("<8sIIQ16sI28sIIQ56x")  # magic .. options length, paired pages; then geometry, options
_GEOMETRY = struct.Struct("<13Q")
#: in this order in the header; paired_pages came later, and has a field of its own before them
_FIELDS = tuple(field.name for field in fields(Geometry) if field.name != "paired_pages")


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the regions of an image lie, in bytes from its start."""

    backend: str
    oob_used: int  #: bytes of OOB that a page record keeps
    record_head: int
    stride: int
    boot_at: int
    table_at: int
    nvram_at: int
    spare_at: int
    data_at: int
    end: int


@dataclass(frozen=True, slots=True)
class Header:
    """What an image says of itself. ``ftl`` is empty until a scheme is bound."""

    geometry: Geometry
    backend: str
    uuid: uuids.UUID
    generation: int = 1
    version: int = VERSION
    ftl: str = ""
    oob_used: int = 0
    options: dict[str, Any] | None = None

    @property
    def layout(self) -> Layout:
        return layout_of(self.geometry, self.backend, self.oob_used or self.geometry.oob_bytes)

    @property
    def allocated_bytes(self) -> int:
        """What the file has on the host's disk from the start: its tables; the page records only once it is bound,
        because binding tells how large they are."""
        return self.layout.data_at if self.ftl else self.layout.spare_at


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def layout_of(geometry: Geometry, backend: str, oob_used: int, *, unsummed: bool = False) -> Layout:
    """The regions of an image: a function of its header alone. ``unsummed`` leaves out the checksums of page records,
    which is for chips that keep no data and are no file: they have nothing to protect from their host."""
    head = 12 if backend == "file" else 4 if unsummed else 8
    stride = _up(head + oob_used, 4)
    nvram_at = _up(TABLE_AT + 8 * geometry.blocks, 4096)
    spare_at = _up(nvram_at + geometry.nvram_bytes, 4096)
    data_at = _up(spare_at + stride * geometry.pages, 1 << 16)
    return Layout(
        backend, oob_used, head, stride, BOOT_AT, TABLE_AT, nvram_at, spare_at, data_at,
        data_at + geometry.physical_bytes,
    )  # fmt: skip


def _pack(header: Header) -> bytes:
    options = json.dumps(header.options or {}, sort_keys=True, separators=(",", ":")).encode()
    if len(options) > OPTIONS_BYTES:
        raise ImageError(f"options take {len(options)} bytes: {OPTIONS_BYTES} fit the header")
    name = header.ftl.encode()
    if len(name) > 28:
        raise ImageError(f"the FTL's name {header.ftl!r} takes {len(name)} bytes: 28 fit the header")
    body = _FIXED.pack(
        MAGIC, header.version, HEADER_BYTES, header.generation, header.uuid.bytes,
        BACKENDS.index(header.backend), name, header.oob_used, len(options), header.geometry.paired_pages,
    )  # fmt: skip
    body += _GEOMETRY.pack(*(getattr(header.geometry, field) for field in _FIELDS))
    body += options
    body = body.ljust(HEADER_BYTES - 4, b"\0")
    return body + struct.pack("<I", checksum(body))


def _unpack(raw: bytes, where: str) -> Header:
    """One copy of the header; ImageError names the field that is wrong."""
    if len(raw) < HEADER_BYTES:
        raise ImageError(f"{where}: the file ends inside the header; {HEADER_BYTES} bytes are needed")
    magic, version, size, generation, uid, backend, name, oob_used, n_options, paired = _FIXED.unpack_from(raw)
    if magic != MAGIC:
        raise ImageError(f"{where}: magic is {magic!r}, not {MAGIC!r}: not a NAND image; `flashfs create` makes one")
    if version != VERSION:
        raise ImageError(f"{where}: version is {version}: this program reads version {VERSION}")
    if struct.unpack_from("<I", raw, HEADER_BYTES - 4)[0] != checksum(raw[: HEADER_BYTES - 4]):
        raise ImageError(f"{where}: checksum does not match: the header is damaged")
    if size != HEADER_BYTES:
        raise ImageError(f"{where}: header_bytes is {size}: version {VERSION} has {HEADER_BYTES}")
    if generation >= 2**63:
        raise ImageError(f"{where}: generation is {generation}: it is one more at each rewrite")
    if backend >= len(BACKENDS):
        raise ImageError(f"{where}: backend is {backend}: 0 (file) and 1 (meta) are known")
    values = dict(zip(_FIELDS, _GEOMETRY.unpack_from(raw, _FIXED.size), strict=True))
    try:
        geometry = Geometry(**values, paired_pages=paired)
    except GeometryError as error:
        raise ImageError(f"{where}: {error}") from None
    if oob_used > geometry.oob_bytes:
        raise ImageError(f"{where}: oob_used is {oob_used}: the geometry has {geometry.oob_bytes}")
    start = _FIXED.size + _GEOMETRY.size
    try:
        options = json.loads(raw[start : start + n_options]) if n_options <= OPTIONS_BYTES else None
    except (ValueError, RecursionError):  # brackets within brackets, a thousand deep
        options = None
    if not isinstance(options, dict):
        raise ImageError(f"{where}: options are not a JSON object of at most {OPTIONS_BYTES} bytes")
    ftl = name.rstrip(b"\0").decode(errors="replace")
    if not ftl.isprintable() or "\ufffd" in ftl:
        raise ImageError(f"{where}: ftl is {name!r}: a name of printable characters would do")
    return Header(
        geometry, BACKENDS[backend], uuids.UUID(bytes=uid), generation, version, ftl, oob_used, options,
    )  # fmt: skip


def _read_header(fd: int, path: Path) -> Header:
    """The newer of the two good copies."""
    found: list[Header] = []
    problem: ImageError | None = None
    for index in range(2):
        raw = os.pread(fd, HEADER_BYTES, index * HEADER_BYTES)
        try:
            found.append(_unpack(raw, f"{path}: header copy {index}"))
        except ImageError as error:
            problem = problem or error
    if not found:
        raise problem or ImageError(f"{path}: no header")
    return max(found, key=lambda header: header.generation)


def _write_header(fd: int, header: Header) -> None:
    """One copy after the other, each durable before the next is touched."""
    raw = _pack(header)
    for index in range(2):
        os.pwrite(fd, raw, index * HEADER_BYTES)
        os.fdatasync(fd)


def _reserve(fd: int, header: Header, path: Path) -> None:
    """Make the file long enough; what will be mapped gets its blocks now, because a mapped page that finds the host's
    disk full kills the process. Asked first, the disk is not filled up only to find that there was too little."""
    try:
        held = os.fstat(fd)
        disk = os.fstatvfs(fd)
        # a file system in memory may have no size, and then says that nothing of it is free
        if disk.f_blocks and header.allocated_bytes - 512 * held.st_blocks > disk.f_bfree * disk.f_frsize:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if held.st_size < header.layout.end:  # a longer one is left alone: it is not ours to cut
            os.ftruncate(fd, header.layout.end)
        os.posix_fallocate(fd, 0, header.allocated_bytes)
    except (OSError, OverflowError) as error:
        why = error.strerror if isinstance(error, OSError) else os.strerror(errno.EFBIG)
        need = header.allocated_bytes / 2**20
        raise ImageError(f"{path}: {why}; the image's tables need {need:.1f} MiB on the disk") from None


def _holds_data(fd: int, start: int) -> bool:
    """Whether anything but zeros is in the file from ``start`` on. Holes are not looked at."""
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


def create(path: str | Path, geometry: Geometry, backend: str = "file", force: bool = False) -> Header:
    """Make a blank chip. An existing file is refused unless ``force``; nothing of it is lost before that is decided."""
    path = Path(path)
    if backend not in BACKENDS:
        raise ImageError(f"backend {backend!r}: {' or '.join(BACKENDS)} would do")
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | (0 if force else os.O_EXCL)
    try:
        fd = os.open(path, flags, 0o600)
    except FileExistsError:
        raise ImageError(f"{path}: exists already; another name, or --force to overwrite it, would do") from None
    except OSError as error:
        raise ImageError(f"{path}: {error.strerror}") from None
    header = Header(geometry, backend, uuids.uuid4(), options={})
    try:
        _require_file(fd, path)
        if not force:
            os.fchmod(fd, 0o600)  # whatever the umask: the daemon has to open it again, and nobody else
        _lock(fd, path, fcntl.LOCK_EX)
        os.ftruncate(fd, 0)
        _reserve(fd, header, path)
        _write_header(fd, header)
    except BaseException:
        if not force:
            path.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)
    return header


def _lock(fd: int, path: Path, kind: int) -> None:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise ImageError(f"{path}: cannot lock: {error.strerror}") from None
        holder = _holder(fd)
        raise ImageError(f"{path}: in use by {holder}; unmount it there first") from None


def _holder(fd: int) -> str:
    """Who holds the lock, as far as the kernel tells."""
    inode = f":{os.fstat(fd).st_ino}"
    try:
        for line in Path("/proc/locks").read_text().splitlines():
            parts = line.split()
            if len(parts) > 5 and parts[1] == "FLOCK" and parts[5].endswith(inode):
                return f"process {parts[4]}"
    except OSError:
        pass
    return "another process"


def _open_fd(path: Path, readonly: bool) -> int:
    try:
        # without O_NONBLOCK, a pipe would be waited for
        fd = os.open(path, (os.O_RDONLY if readonly else os.O_RDWR) | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise ImageError(f"{path}: no such image; `flashfs create {path}` makes one") from None
    except OSError as error:
        raise ImageError(f"{path}: {error.strerror}") from None
    try:
        _require_file(fd, path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _require_file(fd: int, path: Path) -> None:
    """Devices, pipes and folders are refused, whatever they would say."""
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise ImageError(f"{path}: not a regular file")


def inspect(path: str | Path) -> Header:
    """The header alone, without the lock: what the file says of itself."""
    fd = _open_fd(Path(path), readonly=True)
    try:
        return _read_header(fd, Path(path))
    finally:
        os.close(fd)


@dataclass(slots=True)
class Image:
    """An open, locked image: its header and its chip."""

    path: Path | None
    header: Header
    chip: Chip

    def bind(self, ftl: str, options: dict[str, Any], oob_used: int) -> None:
        """Give a blank image to a scheme that keeps ``oob_used`` bytes of OOB a page. The layout follows from that, so
        the chip is opened anew; a chip that was ever written is refused."""
        old = self.header
        if old.ftl:
            raise ImageError(f"{self.path}: bound to {old.ftl} already")
        if oob_used > old.geometry.oob_bytes:
            raise ImageError(
                f"{self.path}: {ftl} needs {oob_used} bytes of OOB a page: this chip has {old.geometry.oob_bytes}"
            )
        if self.path is not None and _holds_data(self.chip_fd(), old.layout.spare_at):
            raise ImageError(f"{self.path}: its header says that it is blank, and there are pages in it; "
                             f"`flashfs create --force {self.path}` makes it blank")  # fmt: skip
        header = replace(old, ftl=ftl, options=options, oob_used=oob_used, generation=old.generation + 1)
        _pack(header)  # what does not fit is refused before the chip is let go
        bad = [b for b in range(old.geometry.blocks) if self.chip.block_health(b)]
        if self.path is None:
            self.chip.close()
            self.header, self.chip = header, _memory_chip(header)
        else:
            fd = os.dup(self.chip_fd())
            self.chip.close()
            _reserve(fd, header, self.path)
            _write_header(fd, header)
            self.header, self.chip = header, Chip(header.geometry, header.layout, fd, self.path)
        for block in bad:
            self.chip.mark_factory_bad(block)

    def chip_fd(self) -> int:
        return self.chip.fileno()

    def close(self) -> None:
        self.chip.close()


def open_image(path: str | Path, readonly: bool = False) -> Image:
    """Open and lock an image (shared when read-only). ImageError names the file and the field at fault."""
    path = Path(path)
    fd = _open_fd(path, readonly)
    try:
        _lock(fd, path, fcntl.LOCK_SH if readonly else fcntl.LOCK_EX)
        header = _read_header(fd, path)
        size = os.fstat(fd).st_size
        if size < header.layout.end:
            raise ImageError(f"{path}: size is {size} bytes: its geometry needs {header.layout.end}; it was truncated")
        if not readonly:
            _reserve(fd, header, path)
        chip = Chip(header.geometry, header.layout, fd, path, readonly)
    except BaseException:
        os.close(fd)
        raise
    block = chip.block_table_problem()
    if block is not None:
        chip.close()
        raise ImageError(f"{path}: block table: the entry of block {block} fails its check")
    return Image(path, header, chip)


def _memory_chip(header: Header) -> Chip:
    oob_bytes = header.oob_used or header.geometry.oob_bytes
    layout = layout_of(header.geometry, header.backend, oob_bytes, unsummed=header.backend == "meta")
    fd = os.memfd_create("nandimg", os.MFD_CLOEXEC)
    os.ftruncate(fd, layout.end)
    return Chip(header.geometry, layout, fd)


def memory_image(geometry: Geometry, backend: str = "file", factory_bad: tuple[int, ...] = ()) -> Image:
    """A chip that lives and dies with this process: for replay and for tests."""
    if backend not in BACKENDS:
        raise ImageError(f"backend {backend!r}: {' or '.join(BACKENDS)} would do")
    header = Header(geometry, backend, uuids.UUID(int=0), options={})
    image = Image(None, header, _memory_chip(header))
    for block in factory_bad:
        image.chip.mark_factory_bad(block)
    return image
