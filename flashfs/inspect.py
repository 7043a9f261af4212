"""What is in an image, offline: the views behind ``flashfs dump``, as plain dicts and lists.

Nothing here changes a byte. A crashed image is recovered in memory and shown as a mount would find it; a blank one,
and one that no recovery can make sense of, is shown as the bare chip, and the view says so. SPEC.md has the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import nandimg
from flashfs import _metalog
from flashfs._pool import KIND_NAMES, STREAM_NAMES
from flashfs.device import ENGINE_OOB, Device
from flashfs.errors import CorruptError, FtlError, UsageError
from flashfs.ftl import scheme as scheme_of

STATUS_NAMES = ("erased", "whole", "torn")
HEALTH_NAMES = ("good", "factory bad", "grown bad")
KIND_USER, KIND_CHECKPOINT, KIND_TRIM = 1, 4, 5
FLAG_NAMES = ((1, "moved"), (2, "last"), (4, "clean"), (8, "lost"))
ERASED, WHOLE, TORN = 0, 1, 2
STREAM_META = 3
NO_PAGE = 2**32 - 1
HEX_LINES = 4  #: of sixteen bytes, from the start of a page
BLANK = "blank: bound to no FTL yet; `flashfs mount` binds and formats it"


@dataclass(frozen=True, slots=True)
class Spare:
    """The engine's part of a page's OOB, decoded, and the scheme's bytes behind it."""

    seq: int
    order: int
    lpa: int
    kind: int
    flags: int
    stream: int
    own: bytes

    @classmethod
    def of(cls, raw: bytes) -> Spare:
        word, lpa, low, high = struct.unpack_from("<QIII", raw)
        return cls(
            word & (2**48 - 1), low | (high & 0xFFFF) << 32, lpa, word >> 48 & 0xFF, word >> 56, high >> 16 & 0xFF,
            raw[ENGINE_OOB:],
        )  # fmt: skip

    @property
    def moved(self) -> bool:
        """A copy that cleaning made."""
        return bool(self.flags & 1)


@dataclass(frozen=True, slots=True)
class Copy:
    """A page of some LPA that a scan of the spare areas found."""

    ppa: int
    status: int
    spare: Spare
    live: bool


class View:
    """An image opened read-only: its chip, and the device over it if there is one (else ``note`` says why not)."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.header = nandimg.inspect(self.path)
        self.device: Device | None = None
        self.note = ""
        self._image: nandimg.Image | None = None
        if self.header.ftl:
            try:
                self.device = Device.open(self.path, readonly=True)
            except (CorruptError, FtlError) as error:
                self.note = f"not recoverable: {error}"
        else:
            self.note = BLANK
        if self.device is None:
            self._image = nandimg.open_image(self.path, readonly=True)
            self.chip: nandimg.Nand = self._image.chip
        else:
            self.chip = self.device.nand
        self.per_block = self.header.geometry.pages_per_block

    def close(self) -> None:
        if self.device:
            self.device.close(clean=False)
        if self._image:
            self._image.close()

    def at(self, ppa: int) -> tuple[int, int]:
        """(block, page) of a PPA."""
        return divmod(ppa, self.per_block)

    def spare(self, ppa: int) -> tuple[int, Spare]:
        """(status, OOB) by a spare read."""
        status, raw = self.chip.read_spare_area(*self.at(ppa))
        return status, Spare.of(raw)

    def live(self, ppa: int) -> bool:
        """Whether the device's validity store holds this page for live."""
        block, page = self.at(ppa)
        return self.device is not None and page in self.device.ssd.validity.live_in(block)

    def programmed(self, block: int) -> int:
        """Pages of a block before the first that is erased; those pages are all whole or torn. O(log pages) reads."""
        low, high = 0, self.per_block
        while low < high:
            middle = (low + high) // 2
            if self.chip.read_page(block, middle)[0] == ERASED:
                high = middle
            else:
                low = middle + 1
        return low

    def pages(self, stream: int | None = None) -> Iterator[tuple[int, int, bytes]]:
        """(PPA, status, OOB) of every page that is not erased, in blocks of that stream alone if one is named."""
        for block in range(self.chip.blocks):
            if stream is not None and self.spare(block * self.per_block)[1].stream != stream:
                continue
            for page in range(self.per_block):
                status, raw = self.chip.read_spare_area(block, page)
                if status == ERASED:
                    break
                yield block * self.per_block + page, status, raw

    def copies(self, lpa: int) -> list[Copy]:
        """Every user page whose OOB names that LPA, oldest first."""
        name = struct.pack("<I", lpa)
        found = []
        for ppa, status, raw in self.pages():
            if raw[8:12] == name:
                spare = Spare.of(raw)
                if spare.kind == KIND_USER:
                    found.append(Copy(ppa, status, spare, self.live(ppa)))
        return sorted(found, key=lambda copy: (copy.spare.seq, copy.spare.order, copy.ppa))

    def current(self, lpa: int) -> Copy | None:
        """The live page of an LPA: where the mapping says, or, if that was a guess and a wrong one, by a scan."""
        if self.device is None or lpa >= self.header.geometry.lpas:
            return None
        ppa = self.device.ssd.mapping.explain(lpa)["ppa"]
        if ppa is None:
            return None
        status, spare = self.spare(ppa)
        if spare.lpa == lpa and spare.kind == KIND_USER and self.live(ppa):
            return Copy(ppa, status, spare, True)
        return next((copy for copy in self.copies(lpa) if copy.live), None)

    def own(self, spare: Spare) -> dict[str, Any]:
        """The scheme's own bytes, as the scheme reads them."""
        if not self.header.ftl or spare.kind != KIND_USER:
            return {}
        return scheme_of(self.header.ftl).describe_oob(spare.own)

    def meta_page(self, ppa: int) -> bytes | None:
        """The data of a whole checkpoint page, or None: what a checkpoint is loaded through."""
        if ppa >= self.header.geometry.pages:
            return None
        status, data, raw = self.chip.read_page(*self.at(ppa))
        return data if status == WHOLE and Spare.of(raw).kind == KIND_CHECKPOINT else None


@contextmanager
def opened(path: str | Path) -> Iterator[View]:
    """A View for as long as it takes."""
    view = View(path)
    try:
        yield view
    finally:
        view.close()


def _within(what: str, value: int, limit: int, path: str | Path) -> None:
    if not 0 <= value < limit:
        raise UsageError(f"{what} {value}: {path} has {what}s 0 to {limit - 1}")


# --- the image


def header(path: str | Path) -> dict[str, Any]:
    """What the image says of itself, where its regions lie, and how its two header copies are."""
    found = nandimg.inspect(path)
    geometry = found.geometry
    layout = asdict(found.layout)
    return {
        "image": str(path),
        "version": found.version,
        "generation": found.generation,
        "uuid": str(found.uuid),
        "backend": found.backend,
        "ftl": found.ftl or None,
        "options": found.options or {},
        "oob_used": found.oob_used,
        "state": f"bound to {found.ftl}" if found.ftl else BLANK,
        "logical_bytes": geometry.logical_bytes,
        "physical_bytes": geometry.physical_bytes,
        "op": round(geometry.op, 6),
        "copies": _header_copies(Path(path)),
        "geometry": geometry.as_dict(),
        "layout": {name: layout[name] for name in layout if name not in ("backend", "oob_used")},
    }


def _header_copies(path: Path) -> list[dict[str, Any]]:
    rows = []
    with path.open("rb") as file:
        for copy in range(2):
            raw = file.read(4096)
            whole = len(raw) == 4096 and nandimg.checksum(raw[:-4]) == struct.unpack("<I", raw[-4:])[0]
            generation = struct.unpack_from("<Q", raw, 16)[0] if whole else None
            rows.append({"copy": copy, "state": "whole" if whole else "damaged", "generation": generation})
    return rows


def blocks(path: str | Path) -> list[dict[str, Any]]:
    """The block table: what the chip keeps of each block, what its first page says, what the device makes of it."""
    with opened(path) as view:
        return [_block(view, block) for block in range(view.chip.blocks)]


def _block(view: View, block: int) -> dict[str, Any]:
    status, spare = view.spare(block * view.per_block)
    whole = status == WHOLE
    ssd = view.device.ssd if view.device else None
    row = {
        "block": block,
        "die": block % view.chip.dies,
        "state": ssd.pool.describe(block)["state"] if ssd else "unknown" if view.header.ftl else "blank",
        "stream": _name(STREAM_NAMES, spare.stream) if whole else "",
        "kind": KIND_NAMES.get(spare.kind, str(spare.kind)) if whole else "",
        "order": spare.order if whole else None,
        "erases": view.chip.erase_count(block),
        "health": HEALTH_NAMES[view.chip.block_health(block)],
        "live": len(ssd.validity.live_in(block)) if ssd else None,
        "next_page": view.programmed(block),
    }
    if status == TORN:
        row["kind"] = "torn"
    return row


def _name(names: tuple[str, ...], index: int) -> str:
    return names[index] if index < len(names) else str(index)


# --- one page


def page(path: str | Path, ppa: int) -> dict[str, Any]:
    """One physical page: status, record, OOB, the scheme's bytes, how it begins, whether it counts, and why."""
    with opened(path) as view:
        _within("PPA", ppa, view.header.geometry.pages, path)
        block, number = view.at(ppa)
        status, data, raw = view.chip.read_page(block, number)
        spare = Spare.of(raw)
        counts, why = _verdict(view, ppa, status, spare)
        out: dict[str, Any] = {
            "ppa": ppa, "block": block, "page": number, "die": block % view.chip.dies,
            "status": STATUS_NAMES[status], "live": counts, "why": why,
            "record": _record(view, ppa, status, data),
        }  # fmt: skip
        if status != ERASED:
            out["oob"] = _oob(spare)
            out["scheme_oob"] = {**view.own(spare), "bytes": spare.own.hex(" ")}
            if status == WHOLE and spare.kind in (KIND_CHECKPOINT, KIND_TRIM):
                out["content"] = _content(spare, data)
            out["data"] = _hexdump(data) if view.chip.keeps_data else ["not kept: the image has the meta backend"]
        return out


def _oob(spare: Spare) -> dict[str, Any]:
    return {
        "lpa": spare.lpa if spare.kind == KIND_USER else None,
        "seq": spare.seq,
        "kind": KIND_NAMES.get(spare.kind, str(spare.kind)),
        "flags": [name for bit, name in FLAG_NAMES if spare.flags & bit],
        "order": spare.order,
        "stream": _name(STREAM_NAMES, spare.stream),
    }


def _record(view: View, ppa: int, status: int, data: bytes) -> dict[str, Any]:
    """The chip's own part of a page record, read from the file itself."""
    layout = view.header.layout
    with view.path.open("rb") as file:
        file.seek(layout.spare_at + ppa * layout.stride)
        raw = file.read(layout.record_head + layout.oob_used)
    epoch, crc = struct.unpack_from("<II", raw)
    sums = nandimg.checksum(raw[8:], nandimg.checksum(struct.pack("<II", ppa, epoch)))
    current = view.chip.erase_count(view.at(ppa)[0]) + 1
    known = {
        "epoch": epoch,
        "block_epoch": current,
        "checksum": "matches" if crc == sums else "does not match",
    }
    if epoch < current:
        known["checksum"] = "of a page from before the last erase" if epoch else "never programmed"
        return known
    if not view.chip.keeps_data:
        return {**known, "data_checksum": "none: the meta backend keeps no data"}
    stored = struct.unpack_from("<I", raw, 8)[0]
    if stored == 0:
        return {**known, "data_checksum": "none: programmed without data, reads as zeros"}
    holds = nandimg.page_checksum(data) == stored
    return {**known, "data_checksum": "matches" if holds else "does not match"}


def _verdict(view: View, ppa: int, status: int, spare: Spare) -> tuple[bool, str]:
    """(whether a page counts, why). Needs the mapping; a dead page's reason follows from what replaced it."""
    if status == ERASED:
        return False, "erased"
    if view.device is None:
        return False, view.note
    if status == TORN:
        return False, "torn: power went while it was programmed, a program failed, or its data were lost with the host"
    state = view.device.ssd.pool.describe(ppa // view.per_block)["state"]
    if spare.kind != KIND_USER:
        if state == "meta":
            return True, "its block belongs to the metadata log"
        return False, f"a newer checkpoint replaced it; its block is {state}"
    if view.live(ppa):
        return True, "the mapping names it"
    return False, _why_dead(spare, view.current(spare.lpa))


def _why_dead(spare: Spare, now: Copy | None) -> str:
    """Why a whole user page is not live, from the live page of its LPA."""
    if now is None:
        return "its LPA holds nothing: it was trimmed later"
    if now.spare.seq > spare.seq:
        return f"superseded by sequence number {now.spare.seq} at PPA {now.ppa}"
    if now.spare.seq < spare.seq:
        return f"never flushed and judged lost; sequence number {now.spare.seq} at PPA {now.ppa} counts"
    if now.spare.order < spare.order:
        return f"a copy of an unfinished move; its original at PPA {now.ppa} counts"
    return f"moved to PPA {now.ppa} by cleaning"


def _content(spare: Spare, data: bytes) -> dict[str, Any]:
    """What a metadata page says."""
    if spare.kind == KIND_TRIM:
        return {"trims": [{"lpa": lpa, "pages": n, "seq": seq} for lpa, n, seq in _metalog.trim_records(data)]}
    if data[:4] == _metalog.MAGIC_DESCRIPTOR and spare.flags & 2:
        return _descriptor(data)
    if data[:4] == _metalog.MAGIC_INDEX and _metalog.is_sealed(data):
        _, _, n, previous = _metalog.INDEX.unpack_from(data)
        return {"index": "extents of a checkpoint", "extents": n, "previous": None if previous == NO_PAGE else previous}
    return {"stream": f"page {spare.lpa} of checkpoint {spare.seq}"}


def _descriptor(data: bytes) -> dict[str, Any]:
    (_, _, identity, seq, order, size, flags, n_sections, n_extents, previous, mounts) = (
        _metalog.DESCRIPTOR.unpack_from(data)
    )
    at = _metalog.DESCRIPTOR.size
    parts = [_metalog.SECTION.unpack_from(data, at + i * _metalog.SECTION.size) for i in range(n_sections)]
    at += n_sections * _metalog.SECTION.size
    return {
        "checkpoint": identity, "whole": bool(_metalog.is_sealed(data)), "clean": bool(flags & 4), "seq": seq,
        "order": order, "mounts": mounts, "stream_bytes": size, "index": None if previous == NO_PAGE else previous,
        "sections": [
            {"section": name.rstrip(b"\0").decode(errors="replace"), "bytes": n, "checksum": crc}
            for name, n, crc in parts
        ],
        "extents": [
            {"ppa": first, "pages": n}
            for first, n in (_metalog.EXTENT.unpack_from(data, at + i * 8) for i in range(n_extents))
        ],
    }  # fmt: skip


def _hexdump(data: bytes) -> list[str]:
    lines = []
    for at in range(0, min(len(data), 16 * HEX_LINES), 16):
        part = data[at : at + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:04x}  {part.hex(' ')}  |{text}|")
    return lines


# --- one LPA


def lpa(path: str | Path, lpa: int) -> dict[str, Any]:
    """An LPA's whole story: where it is, every copy that is still in flash, the trims that cover it, what each
    structure says of it, and what the NVRAM holds of it. Reads every spare area."""
    with opened(path) as view:
        _within("LPA", lpa, view.header.geometry.lpas, path)
        copies = view.copies(lpa)
        live = [copy for copy in copies if copy.live]
        now = live[0] if live else None
        trims = [row for row in _trims(view) if row["lpa"] <= lpa < row["lpa"] + row["pages"]]
        saved = [row for row in _saved(view) if row["lpa"] == lpa]
        newest = max(saved, key=lambda row: row["seq"]) if saved else None
        out: dict[str, Any] = {
            "lpa": lpa,
            "offset": lpa * view.header.geometry.page_bytes,
            "reads": _reads(view, now, newest, trims),
            "ppa": now.ppa if now else None,
            "block": now.ppa // view.per_block if now else None,
            "page": now.ppa % view.per_block if now else None,
            "seq": now.spare.seq if now else None,
        }
        if view.note:
            out["note"] = view.note
        if view.device:
            out["mapping"] = view.device.ssd.mapping.explain(lpa)
        out["copies"] = [_copy_row(view, copy, now, trims) for copy in copies]
        out["trims"] = trims
        out["nvram"] = saved
        return out


def _reads(view: View, now: Copy | None, saved: dict[str, Any] | None, trims: list[dict[str, Any]]) -> str:
    """What the host gets, in words."""
    if view.device is None:
        return view.note
    newest = max([now.spare.seq if now else 0, *(row["seq"] for row in trims)])
    if saved and saved["counts"] and saved["seq"] > newest:
        return f"NVRAM slot {saved['slot']}: a mount puts it into flash"
    if now is None:
        return "zeros: never written, or trimmed"
    return f"PPA {now.ppa}" if now.status == WHOLE else f"an error: PPA {now.ppa} cannot be read"


def _copy_row(view: View, copy: Copy, now: Copy | None, trims: list[dict[str, Any]]) -> dict[str, Any]:
    if copy.live:
        why = "live"
    elif copy.status == TORN:
        why = "torn"
    elif view.device is None:
        why = view.note
    elif now is None:
        later = [row["seq"] for row in trims if row["seq"] > copy.spare.seq]
        why = f"trimmed at sequence number {min(later)}" if later else "trimmed before the last checkpoint"
    else:
        why = _why_dead(copy.spare, now)
    return {
        "ppa": copy.ppa,
        "block": copy.ppa // view.per_block,
        "page": copy.ppa % view.per_block,
        "seq": copy.spare.seq,
        "order": copy.spare.order,
        "stream": _name(STREAM_NAMES, copy.spare.stream),
        "moved": copy.spare.moved,
        "status": STATUS_NAMES[copy.status],
        "state": "live" if copy.live else "torn" if copy.status == TORN else "dead",
        "why": why,
        **view.own(copy.spare),
    }


def _trims(view: View) -> list[dict[str, Any]]:
    """Every trim record still in flash; one counts if it is newer than the checkpoint that a mount stands on."""
    floor = _floor(view)
    rows = []
    for ppa, status, raw in view.pages(STREAM_META):
        spare = Spare.of(raw)
        if status != WHOLE or spare.kind != KIND_TRIM:
            continue
        status, data, _ = view.chip.read_page(*view.at(ppa))
        if status != WHOLE:
            continue
        for first, n, seq in _metalog.trim_records(data):
            rows.append({"seq": seq, "lpa": first, "pages": n, "ppa": ppa, "in_checkpoint": seq <= floor})
    return sorted(rows, key=lambda row: row["seq"])


def _floor(view: View) -> int:
    """The sequence number of the newest whole checkpoint: what is older is in it."""
    for found in _checkpoints(view):
        if found["whole"]:
            return int(found["seq"])
    return 0


def _checkpoints(view: View) -> list[dict[str, Any]]:
    """Every checkpoint descriptor in flash, newest first, and whether all of it can still be read."""
    rows = []
    for ppa, status, raw in view.pages(STREAM_META):
        spare = Spare.of(raw)
        if status != WHOLE or spare.kind != KIND_CHECKPOINT or not spare.flags & 2:
            continue
        try:
            found = _metalog.LoadedCheckpoint(view.meta_page, ppa, view.header.geometry.page_bytes)
        except CorruptError as error:
            rows.append({"checkpoint": spare.seq, "ppa": ppa, "whole": False, "note": str(error)})
            continue
        sizes = {name: len(part) for name, part in found.sections.items()}
        rows.append({
            "checkpoint": found.identity, "ppa": ppa, "whole": True, "clean": found.clean, "seq": found.seq,
            "order": found.order, "mounts": found.mounts,
            "sections": ", ".join(f"{name} {size}" for name, size in sizes.items()),
        })  # fmt: skip
    return sorted(rows, key=lambda row: -row["checkpoint"])


def _saved(view: View) -> list[dict[str, Any]]:
    """The NVRAM's write-buffer slots that are whole. One older than the checkpoint was programmed long ago."""
    size = 16 + view.header.geometry.page_bytes
    rows = []
    if not view.chip.keeps_data or not view.header.ftl:
        return []
    floor = _floor(view) if view.header.geometry.nvram_bytes >= size else 0
    for slot in range(view.header.geometry.nvram_bytes // size):
        raw = view.chip.nvram(slot * size, size)
        crc, lpa, seq = struct.unpack_from("<IIQ", raw)
        if crc == nandimg.checksum(raw[4:]) and (crc or seq):
            rows.append({"slot": slot, "lpa": lpa, "seq": seq, "counts": seq > floor})
    return rows


# --- the log, the scheme, the recovery


def log(path: str | Path) -> dict[str, Any]:
    """The metadata log: checkpoints and trim records that are still in flash, boot hints, NVRAM slots."""
    with opened(path) as view:
        hints = _metalog.boot_hints([view.chip.boot_slot(0), view.chip.boot_slot(1)])
        out: dict[str, Any] = {"note": view.note} if view.note else {}
        out["boot_hints"] = [{"checkpoint": identity, "ppa": ppa} for identity, ppa in hints]
        out["checkpoints"] = _checkpoints(view)
        out["trims"] = _trims(view)
        out["nvram"] = _saved(view)
        return out


def scheme(path: str | Path, view_name: str | None = None) -> Any:
    """The bound scheme's own structures: all of its views, or the one named; see Scheme.views."""
    with opened(path) as view:
        if view.device is None:
            return {"ftl": view.header.ftl or None, "note": view.note}
        views = scheme_of(view.header.ftl).views
        if view_name is None:
            return {"ftl": view.header.ftl, **{name: show(view.device) for name, show in views.items()}}
        if view_name not in views:
            raise UsageError(f"{view.header.ftl} has no view {view_name}: it has {', '.join(views) or 'none'}")
        return views[view_name](view.device)


def recovery(path: str | Path) -> dict[str, Any]:
    """What a mount would do to come back, step by step; done in memory, without the step that writes."""
    with opened(path) as view:
        if view.device is None:
            return {"ftl": view.header.ftl or None, "note": view.note}
        report = view.device.recovery
        return {
            "ftl": view.header.ftl,
            "clean": report.clean,
            "summary": report.summary(),
            "figures": dict(report.figures),
            "alarms": list(report.alarms),
            "steps": [asdict(step) for step in report.steps],
        }


def problems(path: str | Path, data: bool = False) -> list[str]:
    """Every broken invariant, a line each; [] when sound. ``data`` also reads every live page and proves its checksum,
    which takes as long as reading the disk."""
    out = [f"header copy {row['copy']}: damaged" for row in header(path)["copies"] if row["state"] != "whole"]
    with opened(path) as view:
        if view.device is None:
            return out if view.note == BLANK else [*out, view.note]
        out += view.device.recovery.alarms
        out += view.device.problems()
        if data:
            for block in range(view.chip.blocks):
                out += _unreadable(view, block)
        return out


def _unreadable(view: View, block: int) -> list[str]:
    """Live pages of a block that cannot be read whole."""
    assert view.device is not None
    out = []
    for page in view.device.ssd.validity.live_in(block):
        status, _, raw = view.chip.read_page(block, page)
        if status != WHOLE:
            ppa = block * view.per_block + page
            out.append(f"PPA {ppa}: LPA {Spare.of(raw).lpa} cannot be read: its data do not match their checksum")
    return out
