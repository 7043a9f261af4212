"""One request at a time: what each did to every page of a small chip, as an HTML page to step through.

It is for looking and teaching: chip and workload are small, and nothing here is timed. What a step did is read off the
flash after it, by the spare areas of blocks in which anything changed.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from flashfs import inspect
from flashfs.device import Device
from flashfs.engine.blocks.pool import KIND_NAMES, STATE_NAMES
from flashfs.engine.views import block_map
from flashfs.errors import UsageError
from flashfs.inspect import Spare
from flashfs.replay._player import Player
from flashfs.replay.play import Progress, Setup, ready
from flashfs.replay.request_source import OPERATIONS, Batch, Source

PAGES_MOST = 8192  #: of the chip
REQUESTS_MOST = 2000
LINES_MOST = 12  #: of what a step did
ERASED, WHOLE = 0, 1  #: as a spare read has them
HERE = Path(__file__).parent
LETTERS = {"translation": "T", "validity": "V", "checkpoint": "C", "trim": "D", "mount": "M", "pad": "-", "lost": "?"}


@dataclass(frozen=True, slots=True)
class Page:
    """What a page shows: ``state`` is erased, torn, live, superseded, or the kind of a page that is not the user's;
    ``label`` fits into a cell; ``says`` is a sentence."""

    state: str = "erased"
    label: str = ""
    says: str = "erased"


@dataclass(slots=True)
class Recorder:
    """The pages of a chip as they were after the last step."""

    device: Device
    pages: list[Page] = field(default_factory=list)
    blocks: list[tuple[Any, ...]] = field(default_factory=list)

    def look(self) -> dict[str, Any]:
        """What has changed since the last look: ``pages`` [PPA, state, label, sentence] and ``blocks`` [block, state]
        that are different now, and ``did``, a line for each operation that left something."""
        per_block = self.device.nand.geometry.pages_per_block
        now = self._blocks()
        before = self.blocks or [()] * len(now)
        old = self.pages or [Page()] * (len(now) * per_block)
        new = list(old)
        did: list[str] = []
        for block, (was, is_) in enumerate(zip(before, now, strict=True)):
            if was == is_:
                continue
            if was and is_[1] > was[1]:
                did.append(f"erased block {block}")
            first = block * per_block
            new[first : first + per_block] = self._pages(block)
        for ppa, (was_page, page) in enumerate(zip(old, new, strict=True)):
            if page != was_page and self.pages:
                did.append(said(ppa, was_page, page))
        found = {
            "pages": [[ppa, page.state, page.label, page.says] for ppa, page in enumerate(new) if page != old[ppa]],
            "blocks": [[block, STATE_NAMES[one[0]]] for block, one in enumerate(now)
                       if one[:1] != before[block][:1]],
            "did": shortened([line for line in did if line]),
        }  # fmt: skip
        self.pages, self.blocks = new, now
        return found

    def _blocks(self) -> list[tuple[Any, ...]]:
        """(state, erases, next page, live pages) of each."""
        found = block_map.block_map(self.device.ssd)
        live = (tuple(self.device.ssd.validity.live_in(block)) for block in range(len(found["state"])))
        return list(zip(*(found[name].tolist() for name in ("state", "erases", "next_page")), live, strict=True))

    def _pages(self, block: int) -> list[Page]:
        chip = self.device.nand
        owned, newest = self._owned()
        live = set(self.device.ssd.validity.live_in(block))
        free = self.device.ssd.pool.describe(block)["state"] in ("free", "pending")
        out = []
        for page in range(chip.geometry.pages_per_block):
            status, raw = chip.read_spare_area(block, page)
            ppa = block * chip.geometry.pages_per_block + page
            out.append(shown(status, raw, page in live or ppa in owned, free, ppa in owned - newest))
        return out

    def _owned(self) -> tuple[set[int], set[int]]:
        """PPAs of translation and validity pages that live, and those of them that are the newest of their number:
        the others are kept for the last checkpoint."""
        chip = self.device.nand
        found: dict[tuple[int, int], tuple[int, int]] = {}
        owned = self.device.ssd.owned_pages()
        for kind, ppa in owned:
            spare = Spare.of(chip.read_spare_area(*divmod(ppa, chip.geometry.pages_per_block))[1])
            found[kind, spare.lpa] = max(found.get((kind, spare.lpa), (0, 0)), (spare.seq, ppa))
        return {ppa for _, ppa in owned}, {ppa for _, ppa in found.values()}


def shown(status: int, raw: bytes, live: bool, free: bool, kept: bool = False) -> Page:
    """A page, from its spare area; ``free``: its block is, and nothing in it counts; ``kept``: it was superseded, and
    the last checkpoint needs it."""
    if status == ERASED:
        return Page()
    if status != WHOLE:
        return Page("torn", "x", "torn: its program was interrupted")
    spare = Spare.of(raw)
    kind = KIND_NAMES.get(spare.kind, "lost")
    by = ", a copy that cleaning made" if spare.moved else ""
    if kind == "user":
        state = "live" if live else "superseded"
        return Page(state, f"{spare.lpa}", f"LPA {spare.lpa}, write {spare.seq}{by}: {'live' if live else 'dead'}")
    dead = free or (kind in ("translation", "validity") and not live)
    state = "superseded" if dead else kind
    number = f" {spare.lpa}" if kind in ("translation", "validity") else ""
    says = ": dead" if dead else ": superseded, and kept for the last checkpoint" if kept else ""
    return Page(
        "kept" if kept and not dead else state, f"{LETTERS[kind]}{number.strip()}", f"{kind} page{number}{by}{says}"
    )


def said(ppa: int, before: Page, page: Page) -> str:
    """What happened to one page, or "" if the line about its block says so."""
    if page.state == "erased":
        return ""
    if before.state == "erased" or before.label != page.label:
        return f"programmed PPA {ppa}: {page.says}"
    return f"PPA {ppa} died: {page.says.split(',')[0]}" if page.state == "superseded" else ""


def shortened(lines: list[str]) -> list[str]:
    more = len(lines) - LINES_MOST
    return lines if more <= 1 else [*lines[:LINES_MOST], f"and {more} more"]


def asked(batch: Batch, i: int, page_bytes: int) -> str:
    """A request in words."""
    name = OPERATIONS[int(batch.op[i])]
    if not batch.length[i]:
        return name
    first, last = int(batch.offset[i]) // page_bytes, int(batch.offset[i] + batch.length[i] - 1) // page_bytes
    return f"{name} LPA {first}" + (f" to {last}" if last > first else "")


def record(setup: Setup, progress: Progress | None = None) -> dict[str, Any]:
    """Play the source, and look after each request. UsageError if chip or source is too large to look at."""
    with ready(setup, progress) as on:
        device, source = on.device, on.source
        geometry = device.nand.geometry
        if geometry.pages > PAGES_MOST:
            raise UsageError(f"--steps: the chip has {geometry.pages:,} pages, and {PAGES_MOST:,} are the most that "
                             "can be looked at: use --preset tiny-16, or a smaller --size")  # fmt: skip
        recorder = Recorder(device)
        steps = [{"what": "before the first request", **recorder.look(), "figures": figures(device)}]
        player = Player(device.ssd, on.depth, device.quiet_at())
        for batch, i in requests(source):
            player.take(batch.slice(i, i + 1))
            steps.append({"what": asked(batch, i, geometry.page_bytes), **recorder.look(), "figures": figures(device)})
            if progress is not None:
                progress(len(steps) - 1, getattr(source, "ops", None))
        return {
            "ftl": device.ftl, "source": source.name, "options": dict(device.options), "blocks": geometry.blocks,
            "pages_per_block": geometry.pages_per_block, "lpas": geometry.lpas, "steps": steps,
        }  # fmt: skip


def requests(source: Source) -> Iterator[tuple[Batch, int]]:
    """(batch, index) of each request; UsageError for more than can be shown."""
    n = 0
    for batch in source.batches():
        for i in range(len(batch)):
            n += 1
            if n > REQUESTS_MOST:
                raise UsageError(f"--steps: {source.name} has more than {REQUESTS_MOST:,} requests: use "
                                 f"ops={REQUESTS_MOST} of a workload, or --first of a trace")  # fmt: skip
            yield batch, i


def figures(device: Device) -> dict[str, Any]:
    """What is counted so far."""
    stats = device.stats()
    return {
        "host pages written": stats["host"]["write"], "programs": stats["nand"]["program"],
        "erases": stats["nand"]["erase"], "WAF": round(stats["waf"], 3) if stats["waf"] is not None else None,
        "in the write buffer": device.ssd.buffer.held, "free blocks": device.ssd.pool.free_n,
    }  # fmt: skip


def page(found: dict[str, Any]) -> str:
    """The HTML page of what ``record`` found: one file that needs nothing else."""
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(HERE), autoescape=True,
                                     undefined=jinja2.StrictUndefined)  # fmt: skip
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False, "separators": (",", ":")}
    script, style = ((HERE / name).read_text() for name in ("steps.js", "steps.css"))
    return environment.get_template("steps.html").render(
        found, data=found, script=Markup(script), style=Markup(style), script_hash=_hash(script),
        style_hash=_hash(style),
    )  # fmt: skip


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def write(setup: Setup, out: Path, progress: Progress | None = None, *, force: bool = False) -> dict[str, Any]:
    """Make the page and put it at ``out``, whole or not at all. Returns {"file", "bytes", "steps", "waf"}."""
    inspect.check_html(Path(setup.image or ""), out, force, "--steps")
    found = record(setup, progress)
    made = inspect.put_html(page(found), out, force, "--steps")
    return {"file": str(out), "bytes": made, "steps": len(found["steps"]) - 1,
            "waf": found["steps"][-1]["figures"]["WAF"]}  # fmt: skip
