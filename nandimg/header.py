"""The header of an image: packing and unpacking it, and the layout of the regions that follows from it.

SPEC.md describes every byte; the names here are the names there.
"""

from __future__ import annotations

import json
import os
import re
import struct
import uuid as uuids
from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from nandimg._chip import checksum, places_of
from nandimg.errors import GeometryError, ImageError
from nandimg.geometry import ENDURANCE, NVRAM_LIMIT, Geometry

MAGIC = b"NANDIMG\x00"
VERSION = 2
OLDEST_VERSION = 1  #: the oldest version that can be read; `upgrade` updates it
HEADER_BYTES = 4096
BOOT_AT = 2 * HEADER_BYTES
TABLE_AT = BOOT_AT + 4096
BACKENDS = ("file", "meta")
TABLES = ("reserved", "sparse")
OPTIONS_BYTES = 3072  #: room for the options, as JSON
FEATURE_KINDS = ("compatible", "read-only-compatible", "incompatible")
FEATURES_MOST = 12
REGIONS_MOST = 16
GENERATION_MOST = 2**63 - 1  #: of a header: how often it was written
WRITE_BUFFER = "write-buffer"  #: the region with all nvram_bytes of an image whose scheme asked for no others yet
_FIXED = struct.Struct("<8sIIQ16sI28sIIQIIQQQ24x")  # magic .. options length, paired pages .. NVRAM times, endurance
_GEOMETRY = struct.Struct("<13Q")
_FEATURE = struct.Struct("<B31s")
_REGION = struct.Struct("<16sQ")
_OPTIONS_AT = _FIXED.size + _GEOMETRY.size
_FEATURES_AT = _OPTIONS_AT + OPTIONS_BYTES
_REGIONS_AT = _FEATURES_AT + FEATURES_MOST * _FEATURE.size
#: fields of a geometry that were added later: they are part of _FIXED; all others are in _GEOMETRY, in order
_LATER = ("paired_pages", "nvram_read_ns", "nvram_write_ns", "endurance")
_FIELDS = tuple(field.name for field in fields(Geometry) if field.name not in _LATER)
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature of an image that older programs may not know, with a name of up to 31 characters, "owner.what". A
    program that does not know it may ignore a *compatible* one, may only read the image with a *read-only-compatible*
    one, and must refuse the image with an *incompatible* one."""

    name: str
    kind: str = "incompatible"

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or len(self.name) > 31:
            raise ImageError(f"feature {self.name!r}: use up to 31 of a-z, 0-9, '.', '_' and '-'")
        if self.kind not in FEATURE_KINDS:
            raise ImageError(f"feature {self.name}: kind {self.kind!r}: use {', '.join(FEATURE_KINDS)}")


#: page records get their disk blocks when their pages are programmed. Compatible: a program that allocates all of them
#: when it opens the image does no harm
SPARSE_TABLES = Feature("nandimg.sparse-tables", "compatible")


@dataclass(frozen=True, slots=True)
class Region:
    """A part of the NVRAM, with a name of up to 16 characters."""

    name: str
    bytes: int

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or len(self.name) > 16:
            raise ImageError(f"NVRAM region {self.name!r}: use up to 16 of a-z, 0-9, '.', '_' and '-'")
        if not 0 < self.bytes <= NVRAM_LIMIT:
            raise ImageError(f"NVRAM region {self.name}: {self.bytes} bytes: use 1 to {NVRAM_LIMIT}")


def nvram_end(regions: Iterable[Region]) -> int:
    """Bytes of NVRAM that the regions take, with the gaps between them."""
    return max((at + n for at, n in places_of(regions).values()), default=0)


def first_regions(geometry: Geometry) -> tuple[Region, ...]:
    """The NVRAM regions of an image whose scheme has asked for none yet, and of any image of version 1."""
    return (Region(WRITE_BUFFER, geometry.nvram_bytes),) if geometry.nvram_bytes else ()


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of an image's regions, in bytes from its start; ``nvram`` are the regions of its NVRAM."""

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
    nvram: tuple[Region, ...] = ()


@dataclass(frozen=True, slots=True)
class Header:
    """The contents of an image's header. ``ftl`` is empty until a scheme is bound."""

    geometry: Geometry
    backend: str
    uuid: uuids.UUID
    generation: int = 1
    version: int = VERSION
    ftl: str = ""
    oob_used: int = 0
    options: dict[str, Any] | None = None
    features: tuple[Feature, ...] = ()
    regions: tuple[Region, ...] = ()

    @property
    def layout(self) -> Layout:
        """Where the image's regions are. Before a scheme is bound (``oob_used`` 0), page records are as long as the
        whole OOB needs."""
        oob_used = self.oob_used or self.geometry.oob_bytes
        return layout_of(self.geometry, self.backend, oob_used, nvram=self.regions)

    @property
    def tables(self) -> str:
        """One of TABLES: whether page records get their disk blocks all at once, or with the pages."""
        return "sparse" if SPARSE_TABLES in self.features else "reserved"

    @property
    def allocated_bytes(self) -> int:
        """Bytes of the file that are allocated on the host's disk in advance: its tables. The page records only once it
        is bound, because binding fixes their size, and not at all if they are sparse."""
        return self.layout.data_at if self.ftl and self.tables == "reserved" else self.layout.spare_at

    def refuse_unknown(self, where: object, known: Collection[str], *, readonly: bool) -> None:
        """ImageError, which names it, if the image has a feature that is not in ``known`` and must not be ignored."""
        for feature in self.features:
            if feature.name in known or feature.kind == "compatible":
                continue
            if feature.kind == "incompatible":
                raise ImageError(f"{where}: has the feature {feature.name}, which this program does not know; "
                                 "use a newer one")  # fmt: skip
            if not readonly:
                raise ImageError(f"{where}: has the feature {feature.name}, which this program does not know: "
                                 "it may only be read, by `flashfs dump` and `flashfs fsck`")  # fmt: skip

    def with_regions(self, asked: dict[str, int]) -> Header:
        """The header with these NVRAM regions added, and with as much NVRAM as all of them need. A region of 0 bytes is
        left out. The write buffer's, which comes first, keeps its size unless it is among them. ImageError if there are
        too many, or if they are too large."""
        wanted = {region.name: region.bytes for region in self.regions} | asked
        regions = tuple(Region(name, bytes) for name, bytes in wanted.items() if bytes)
        if len(regions) > REGIONS_MOST:
            raise ImageError(f"{len(regions)} NVRAM regions: {REGIONS_MOST} fit the header")
        if regions == self.regions:
            return self
        end = nvram_end(regions)
        if end > NVRAM_LIMIT:
            raise ImageError(f"the NVRAM regions take {end} bytes: use {NVRAM_LIMIT} at most")
        return replace(self, regions=regions, geometry=replace(self.geometry, nvram_bytes=end))


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def layout_of(
    geometry: Geometry, backend: str, oob_used: int, *, nvram: tuple[Region, ...] | None = None, unsummed: bool = False
) -> Layout:
    """The layout of an image, which depends on its header alone. ``unsummed`` leaves out the checksums of page records:
    for chips in memory that keep no data, which the host cannot damage."""
    head = 12 if backend == "file" else 4 if unsummed else 8
    stride = _up(head + oob_used, 4)
    nvram_at = _up(TABLE_AT + 8 * geometry.blocks, 4096)
    spare_at = _up(nvram_at + geometry.nvram_bytes, 4096)
    data_at = _up(spare_at + stride * geometry.pages, 1 << 16)
    return Layout(
        backend, oob_used, head, stride, BOOT_AT, TABLE_AT, nvram_at, spare_at, data_at,
        data_at + geometry.physical_bytes, first_regions(geometry) if nvram is None else nvram,
    )  # fmt: skip


def pack(header: Header) -> bytes:
    """The bytes of one copy of the header; ImageError if something does not fit."""
    options = json.dumps(header.options or {}, sort_keys=True, separators=(",", ":")).encode()
    if len(options) > OPTIONS_BYTES:
        raise ImageError(f"options take {len(options)} bytes: {OPTIONS_BYTES} fit the header")
    name = header.ftl.encode()
    if len(name) > 28:
        raise ImageError(f"the FTL's name {header.ftl!r} takes {len(name)} bytes: 28 fit the header")
    if len(header.features) > FEATURES_MOST:
        raise ImageError(f"{len(header.features)} features: {FEATURES_MOST} fit the header")
    if header.generation > GENERATION_MOST:
        raise ImageError(f"the header was rewritten {header.generation - 1} times, as it says: it cannot be once more")
    geometry = header.geometry
    body = _FIXED.pack(
        MAGIC, header.version, HEADER_BYTES, header.generation, header.uuid.bytes,
        BACKENDS.index(header.backend), name, header.oob_used, len(options), geometry.paired_pages,
        len(header.features), len(header.regions), geometry.nvram_read_ns, geometry.nvram_write_ns,
        geometry.endurance,
    )  # fmt: skip
    body += _GEOMETRY.pack(*(getattr(geometry, field) for field in _FIELDS))
    body += options.ljust(OPTIONS_BYTES, b"\0")
    features = b"".join(_FEATURE.pack(FEATURE_KINDS.index(one.kind), one.name.encode()) for one in header.features)
    body += features.ljust(FEATURES_MOST * _FEATURE.size, b"\0")
    body += b"".join(_REGION.pack(one.name.encode(), one.bytes) for one in header.regions)
    body = body.ljust(HEADER_BYTES - 4, b"\0")
    return body + struct.pack("<I", checksum(body))


def unpack(raw: bytes, where: str) -> Header:
    """One copy of the header; ImageError names the field that is wrong."""
    if len(raw) < HEADER_BYTES:
        raise ImageError(f"{where}: the file ends inside the header; {HEADER_BYTES} bytes are needed")
    (magic, version, size, generation, uid, backend, name, oob_used, n_options, paired, n_features, n_regions,
     nvram_read_ns, nvram_write_ns, endurance) = _FIXED.unpack_from(raw)  # fmt: skip
    if magic != MAGIC:
        raise ImageError(f"{where}: magic is {magic!r}, not {MAGIC!r}")
    if not OLDEST_VERSION <= version <= VERSION:
        raise ImageError(f"{where}: version is {version}: this program reads versions {OLDEST_VERSION} to {VERSION}")
    if not _is_whole(raw):
        raise ImageError(f"{where}: checksum does not match: the header is damaged")
    if size != HEADER_BYTES:
        raise ImageError(f"{where}: header_bytes is {size}: version {version} has {HEADER_BYTES}")
    if generation > GENERATION_MOST:
        raise ImageError(f"{where}: generation is {generation}: it is one more at each rewrite")
    if backend >= len(BACKENDS):
        raise ImageError(f"{where}: backend is {backend}: 0 (file) and 1 (meta) are known")
    later = {"paired_pages": paired}
    if version > 1:
        later |= {"nvram_read_ns": nvram_read_ns, "nvram_write_ns": nvram_write_ns, "endurance": endurance or ENDURANCE}
    values = dict(zip(_FIELDS, _GEOMETRY.unpack_from(raw, _FIXED.size), strict=True))
    try:
        geometry = Geometry(**values, **later)
    except GeometryError as error:
        raise ImageError(f"{where}: {error}") from None
    if oob_used > geometry.oob_bytes:
        raise ImageError(f"{where}: oob_used is {oob_used}: the geometry has {geometry.oob_bytes}")
    ftl = name.rstrip(b"\0").decode(errors="replace")
    if not ftl.isprintable() or "\ufffd" in ftl:
        raise ImageError(f"{where}: ftl is {name!r}: use a name of printable characters")
    return Header(
        geometry, BACKENDS[backend], uuids.UUID(bytes=uid), generation, version, ftl, oob_used,
        _options(raw, n_options, where), _features(raw, n_features, where) if version > 1 else (),
        _regions(raw, n_regions, geometry, where) if version > 1 else first_regions(geometry),
    )  # fmt: skip


def _is_whole(raw: bytes) -> bool:
    sealed: int = struct.unpack_from("<I", raw, HEADER_BYTES - 4)[0]
    return sealed == checksum(raw[: HEADER_BYTES - 4])


def _options(raw: bytes, length: int, where: str) -> dict[str, Any]:
    try:
        options = json.loads(raw[_OPTIONS_AT : _OPTIONS_AT + length]) if length <= OPTIONS_BYTES else None
    except (ValueError, RecursionError):  # RecursionError: deeply nested brackets
        options = None
    if not isinstance(options, dict):
        raise ImageError(f"{where}: options are not a JSON object of at most {OPTIONS_BYTES} bytes")
    return options


def _text(raw: bytes) -> str:
    return raw.rstrip(b"\0").decode("ascii", errors="replace")


def _features(raw: bytes, count: int, where: str) -> tuple[Feature, ...]:
    if count > FEATURES_MOST:
        raise ImageError(f"{where}: features is {count}: {FEATURES_MOST} at most")
    out = []
    for index in range(count):
        kind, name = _FEATURE.unpack_from(raw, _FEATURES_AT + index * _FEATURE.size)
        if kind >= len(FEATURE_KINDS):
            raise ImageError(f"{where}: feature {index}: kind is {kind}: 0 to {len(FEATURE_KINDS) - 1} are known")
        try:
            out.append(Feature(_text(name), FEATURE_KINDS[kind]))
        except ImageError as error:
            raise ImageError(f"{where}: {error}") from None
    return tuple(out)


def _regions(raw: bytes, count: int, geometry: Geometry, where: str) -> tuple[Region, ...]:
    if count > REGIONS_MOST:
        raise ImageError(f"{where}: NVRAM regions is {count}: {REGIONS_MOST} at most")
    rows = (_REGION.unpack_from(raw, _REGIONS_AT + index * _REGION.size) for index in range(count))
    try:
        out = tuple(Region(_text(name), bytes) for name, bytes in rows)
    except ImageError as error:
        raise ImageError(f"{where}: {error}") from None
    if len({region.name for region in out}) < count:
        raise ImageError(f"{where}: two NVRAM regions have one name")
    if nvram_end(out) > geometry.nvram_bytes:
        raise ImageError(f"{where}: the NVRAM regions take {nvram_end(out)} bytes: nvram_bytes is "
                         f"{geometry.nvram_bytes}")  # fmt: skip
    return out


def read_header(fd: int, path: Path) -> tuple[Header, int]:
    """(the newer of the valid copies, its index). ImageError if there is none, or if a newer program wrote the other
    copy later: the message names its version."""
    found: list[tuple[Header, int]] = []
    problem: ImageError | None = None
    newer: list[tuple[int, ImageError]] = []
    begins = []
    for index in range(2):
        raw = os.pread(fd, HEADER_BYTES, index * HEADER_BYTES)
        begins.append(raw[: len(MAGIC)])
        try:
            found.append((unpack(raw, f"{path}: header copy {index}"), index))
        except ImageError as error:
            problem = problem or error
            magic, version, _, generation, *_ = _FIXED.unpack_from(raw.ljust(HEADER_BYTES))
            if magic == MAGIC and version > VERSION and _is_whole(raw):
                newer.append((generation, error))
    if not found and MAGIC not in begins:
        what = f"it begins with {begins[0]!r}, and not with {MAGIC!r}" if begins[0] else "it is empty"
        raise ImageError(f"{path}: no flashfs image: {what}")
    if not found:
        raise problem or ImageError(f"{path}: no header")
    best = max(found, key=lambda one: one[0].generation)
    for generation, why in newer:
        if generation > best[0].generation:
            raise why
    return best


def write_header(fd: int, header: Header, counts: int = 1) -> None:
    """Write one copy after the other, each durable before the next is touched; ``counts`` is the copy that is valid so
    far, and is written last."""
    raw = pack(header)
    for index in (1 - counts, counts):
        os.pwrite(fd, raw, index * HEADER_BYTES)
        os.fdatasync(fd)


def mend_copies(fd: int, counts: int) -> bool:
    """Make the other copy equal to copy ``counts``; True if it differed. Call before changing an image: an older
    program might use an older copy."""
    raw = os.pread(fd, HEADER_BYTES, counts * HEADER_BYTES)
    if os.pread(fd, HEADER_BYTES, (1 - counts) * HEADER_BYTES) == raw:
        return False
    os.pwrite(fd, raw, (1 - counts) * HEADER_BYTES)
    os.fdatasync(fd)
    return True
