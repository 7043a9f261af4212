"""Bugs to plant: each is one that somebody could write, and a campaign that does not notice it proves nothing.

A *patch* changes one line of a compiled module, which is then built in a copy of the sources; a *plant* changes what
Python can reach while the process runs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from plants import (
    Plant,
    after_recovery,
    empty_flush,
    forget_mount_mark,
    lost_newest_trim,
    restart_sequence,
    skip_step,
    trimmed_pages_come_back,
)

from flashfs.ftl import SCHEMES

ROOT = Path(__file__).parent.parent.parent
BUILD_S = 600  #: a compiler that takes longer has gone wrong


# --- in a compiled module


def unused(_: str, names: list[str]) -> set[str]:
    """What Cython made of the modules in a folder: nine tenths of the bytes. The patched one is written anew."""
    made = {f"{Path(name).stem}{end}" for name in names if name.endswith(".pyx") for end in (".c", ".cpp")}
    return {"__pycache__", *made} & set(names)


@dataclass(frozen=True, slots=True)
class Patch:
    """``old`` becomes ``new`` in ``module``, a path below flashfs/, or below the root if it begins with it or nandimg/:
    without .pyx, or of a module in Python; it must be there exactly once."""

    module: str
    old: str
    new: str

    @property
    def file(self) -> str:
        """From the root on."""
        path = self.module if self.module.startswith(("flashfs/", "nandimg/")) else f"flashfs/{self.module}"
        return path if path.endswith(".py") else f"{path}.pyx"

    def build(self, into: Path) -> Path:
        """A copy of the sources under ``into``, patched, with that one module built anew; what goes in PYTHONPATH."""
        for package in ("nandimg", "flashfs"):
            shutil.copytree(ROOT / package, into / package, ignore=unused)
        setup = (ROOT / "setup.py").read_text()
        (into / "setup.py").write_text(setup.replace('"-O2"', '"-O1"'))  # half the time; bugs need no speed
        source = into / self.file
        text = source.read_text()
        assert text.count(self.old) == 1, f"{self.file} has {text.count(self.old)} times {self.old!r}"
        source.write_text(text.replace(self.old, self.new))
        if source.suffix == ".py":
            return into
        for stale in into.glob(f"{source.relative_to(into).with_suffix('')}.cpython-*.so"):
            stale.unlink()
        build = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
        alone = {**environment(into), "FLASHFS_ONLY": self.file}
        done = subprocess.run(build, cwd=into, env=alone, capture_output=True, text=True, timeout=BUILD_S)
        assert done.returncode == 0, done.stderr[-2000:]
        return into


def environment(path: Path) -> dict[str, str]:
    """Ours, but for where modules come from."""
    return {**os.environ, "PYTHONPATH": str(path)}


@dataclass(frozen=True, slots=True)
class Bug:
    """``of`` lists the FTLs that it is in; ``where`` is the part of the device. If no scheme has the part yet, ``test``
    is what must fail of it: a test below tests/, of a scheme of its own."""

    where: str
    how: Plant | Patch
    of: tuple[str, ...] = tuple(SCHEMES)
    test: str = ""


def of_a_room(path: Path) -> dict[str, Bug]:
    """The bugs of a scheme's own modules, from ``tests/ftl/<its folder>/bugs.toml``: a module is in the scheme's room,
    or has its path from the root. In a folder that a family shares, each says whose it is with ``of``."""
    room, found = path.parent.name, {}
    for one in tomllib.loads(path.read_text())["bug"]:
        place = one["module"] if "/" in one["module"] else f"flashfs/ftl/{room}/{one['module']}"
        patch = Patch(place, one["old"], one["new"])
        test = one.get("test", "")
        found[one["name"]] = Bug(room, patch, () if test else (one.get("of", room),), test)
    return found


BUGS: dict[str, Bug] = {
    "a flush that does nothing": Bug("host interface", empty_flush),
    "a trim that forgets its last page": Bug("host interface", trimmed_pages_come_back),
    "a recovery that reads no trims": Bug("recovery", skip_step("trims")),
    "a recovery that overlooks the newest trim": Bug("recovery", lost_newest_trim),
    "a recovery that scans no pages": Bug("recovery", skip_step("scan")),
    "a recovery that takes no winners": Bug("recovery", skip_step("resolve")),
    "a recovery that takes no checkpoint": Bug("recovery", skip_step("checkpoint")),
    "a recovery that leaves the NVRAM alone": Bug("recovery", skip_step("nvram")),
    "a recovery that does not commit": Bug("recovery", skip_step("commit")),
    "a clean mount that leaves no mark": Bug("metadata log", after_recovery(forget_mount_mark)),
    "sequence numbers that begin again": Bug("core", after_recovery(restart_sequence)),
    "a recovery that does not compare sequence numbers": Bug(
        "recovery",
        Patch("engine/recovery/found_pages",
              "    if entry_seq(a) != entry_seq(b):\n        return entry_seq(a) < entry_seq(b)\n", ""),
    ),
    "a recovery that believes a torn last page": Bug(
        "recovery",
        Patch("engine/recovery/scan", "if last != NONE and last == page - 1 and self.full", "if False and self.full"),
    ),
    "a recovery that believes a page which was meant for another page of its block": Bug(
        "recovery",
        Patch("engine/recovery/scan",
              "        return placed(status, self.ssd.read_oobs, page)\n", "        return status\n"),
        (), "crash/test_hurt.py::test_a_program_on_another_page_of_its_block_shows_by_its_number",
    ),
    "a translation page that was meant for another page of its block and is believed": Bug(
        "map in flash",
        Patch("parts/paged/part_pages",
              "        status = placed(status, self.oob, ppa % self.ssd.nand.pages_per_block)\n", ""),
        (), "crash/test_lost.py::test_is_survived"
        "[a superseded translation page, moved onto the newest version of it in the same block]",
    ),
    "a recovery that lets the original win over its copy": Bug(
        "recovery", Patch("engine/recovery/found_pages", "return not entry_flags(a) & FLAG_MOVED",
                          "return not entry_flags(b) & FLAG_MOVED"),
    ),
    "a block with a torn page that is opened again": Bug(
        "recovery", Patch("engine/recovery/recovery", "and not self.marks[block] & TORN_IN and", "and"),
        ("slimftl",),
    ),
    "metadata that no sync made durable, and that counts": Bug(
        "recovery",
        Patch("parts/from_pages/rebuild", "            if not proven:\n", "            if False:\n"),
        ("geckoftl",),
    ),
    "a fence that gives the log before it back at once": Bug(
        "metadata log",
        Patch("parts/from_pages/fences", "        return before + list(old) if clean else before\n",
              "        return before + list(old)\n"),
        ("geckoftl",),
    ),
    "a fence that leaves blocks unerased that cleaning emptied": Bug(
        "core",
        Patch("parts/from_pages/fences", "        self.ssd.pool.erase_stale(CAUSE_GC, self.ssd.now_ns)\n", ""),
        ("geckoftl",),
    ),
    "a fence that begins where it stands": Bug(
        "core",
        Patch("parts/from_pages/fences", "        before = self.mark or ScanMark()\n", "        before = self.now\n"),
        ("geckoftl",),
    ),
    "a flush that leaves the write buffer": Bug(
        "core",
        Patch("engine/device/ssd",
              "            self.drain()\n            if self.placement.pads:", "            if self.placement.pads:"),
    ),
    "a barrier that logs no trims": Bug(
        "core",
        Patch("engine/device/ssd",
              "            self.log_trims()\n            self.pad_pairs()\n            self.sync_moves()\n"
              "            self.syncs",
              "            self.pad_pairs()\n            self.sync_moves()\n            self.syncs"),
    ),
    "a sync that leaves groups of paired pages half filled": Bug(
        "core",
        Patch("engine/device/ssd",
              "            self.pad_pairs()\n            self.sync_moves()\n            self.syncs",
              "            self.sync_moves()\n            self.syncs"),
    ),
    "blocks that are free before the sync that makes their copies durable": Bug(
        "core",
        Patch("engine/device/ssd",
              "if self.pool.free_n <= self.meta_floor + 1 and self.pool.pending_n:\n            self.barrier()",
              "if self.pool.free_n <= self.meta_floor + 1 and self.pool.pending_n:\n"
              "            self.pool.release_pending(self.pool.pending_n)"),
        ("pagemap", "slimftl", "dftl"),
    ),
    "a checkpoint that is not synced before the last one is given up": Bug(
        "core", Patch("engine/device/ssd", "self.mounts, clean)\n            self.sync_image()\n",
                      "self.mounts, clean)\n")
    ),
    "a dead block that is free before the next sync": Bug(
        "pool",
        Patch("engine/blocks/pool",
              "        self.state[block] = STATE_PENDING\n        self.ready_ns[block] = ready_ns\n"
              "        self.pending[self.pending_n] = block\n        self.pending_n += 1\n        return 0",
              "        self.ready_ns[block] = ready_ns\n        self.push(block)\n        return 0"),
    ),
    "a block that failed and is not marked bad": Bug(
        "pool", Patch("engine/blocks/pool", "        self.nand.retire(block)\n        self.state[block] = STATE_BAD",
                      "        self.state[block] = STATE_BAD")
    ),
    "a protected slot that is written over": Bug(
        "write buffer",
        Patch("engine/device/buffer", "                if not self.in_nvram:\n", "                if True:\n"),
        ("pagemap", "slimftl", "leaftl"),  # the buffer is one of all: where most of the cuts are of it
    ),
    "an NVRAM slot whose checksum is not asked": Bug(
        "write buffer",
        Patch("engine/device/buffer", 'if self._sum(raw[4:]) == int.from_bytes(raw[:4], "little"):', "if any(raw):"),
    ),
    "copies that bear the order of the block they came from": Bug(
        "mover", Patch("engine/device/mover", "order = self.ssd.pool.order[ext.block]",
                       "order = self.ssd.pool.order[self.olds[0] // self.pages_per_block]")
    ),
    "a stream that opens a block without making room": Bug(
        "placement",
        Patch("parts/defaults/defaults", "return self.ssd.make_room() if slot[0] == NONE else 0", "return 0"),
        ("pagemap", "leaftl", "dftl"),
    ),
    "a page table that loads one entry too few": Bug(
        "pagemap", Patch("parts/defaults/defaults", "memcpy(self.table, &saved[0], self.ssd.lpas * sizeof(uint32_t))",
                         "memcpy(self.table, &saved[0], (self.ssd.lpas - 1) * sizeof(uint32_t))"), ("pagemap",)
    ),
    "a block older than the checkpoint that is learned again": Bug(
        "leaftl", Patch("engine/recovery/scan", "self.scan_block(block, self.ssd.pool.next_page[block])",
                        "self.scan_block(block, 0)"), ("leaftl",)
    ),
    "a translation page that dies though the checkpoint stands on it": Bug(
        "leaftl", Patch("parts/paged/part_pages", "        self.kept.insert(ppa)\n        return 0",
                        "        self.ssd.validity.dead(&ppa, 1)\n        return 0"), ("leaftl", "dftl")
    ),
    "a superseded translation page that is lost when it moves": Bug(
        "leaftl",
        Patch("parts/paged/part_pages", "                self.kept.insert(news[i])\n                continue",
                        "                continue"), ("leaftl", "dftl")
    ),
    "a recovery that believes translation pages newer than the checkpoint": Bug(
        "leaftl",
        Patch("engine/recovery/scan", "if (not self.based or oob.seq > self.checkpoint_seq) and",
              "if not self.based and"),
        ("leaftl", "dftl"),
    ),
    "an eviction that writes back half of the dirty entries and calls all clean": Bug(
        "dftl", Patch("parts/paged/entry_pages", "self.entries_written += self.dirty_of(first, n, self.image)",
                      "self.entries_written += self.dirty_of(first, n // 2, self.image)"), ("dftl",)
    ),
    "a checkpoint without the last dirty entry of the cache": Bug(
        "dftl",
        Patch("parts/paged/demand_map", "(numpy.asarray(array, numpy.uint32) for array in self.dirty_entries())",
                      "(numpy.asarray(array, numpy.uint32)[:-1] for array in self.dirty_entries())"), ("dftl",)
    ),
    "a trim of a whole translation page that leaves its entries cached": Bug(
        "dftl", Patch("parts/paged/demand_map", "            self.uncache(page)\n", ""), ("dftl",)
    ),
    "a translation page that is written though the mount has left no mark": Bug(
        "dftl", Patch("parts/paged/entry_pages", "        self.ssd.will_change()\n", ""), ("dftl",)
    ),
    "a pending trim that is forgotten when its page is written": Bug(
        "dftl", Patch("parts/paged/entry_pages",
                      "            self.image[self.pending.lpa[at] - first] = self.pending.ppa[at]\n",
                      "            if self.pending.ppa[at] != NONE:\n"
                      "                self.image[self.pending.lpa[at] - first] = self.pending.ppa[at]\n"), ("dftl",)
    ),
    "a battery that is believed in the middle of a change": Bug(
        "battery", Patch("parts/battery/map_battery", "        if total != int(words[NAMES]):\n",
                         "        if total != int(words[NAMES]) and not total:\n"), ("dftl",)
    ),
    "a battery whose pages beyond the last sync are not looked at": Bug(
        "battery", Patch("parts/battery/map_battery",
                         "if live[block, page] and (status != PAGE_OK or oob.order != order or oob.kind != kind):",
                         "if live[block, page] and status == PAGE_OK and oob.order != order:"), ("dftl", "muftl")
    ),
    "a battery that is believed whenever its blocks were opened": Bug(
        "battery", Patch("parts/battery/map_battery", "            if last and order != self.ssd.pool.order[block]:\n",
                         "            if last and not order:\n"), ("dftl", "muftl")
    ),
    "a battery that belongs to its checkpoint before it is filled": Bug(
        "battery", Patch("parts/battery/map_battery", "        self.words.begin(UNFINISHED, ",
                         "        self.words.begin((<object> self.ssd).meta.checkpoint_id, "), ("dftl", "muftl")
    ),
    "a translation page whose new home the battery does not hear of": Bug(
        "battery", Patch("parts/paged/entry_pages", "            if self.mapping.keeps():\n",
                         "            if self.mapping.keeps() and id:\n"), ("dftl",)
    ),
    "a pending entry that the battery prefers to the cached one": Bug(
        "battery", Patch("parts/battery/map_battery",
                         "numpy.append(words[self.places_at :], words[self.slots_at : self.places_at])",
                         "words[self.slots_at :]"), ("dftl",)
    ),
    "a page that no LPA names and the battery calls live no more": Bug(
        "battery", Patch("parts/paged/demand_map", "        self.store.keep_all(kept[\"spares\"])\n", ""), ("dftl",)
    ),
    "sequence numbers that a recovery from the battery gives again": Bug(
        "battery",
        Patch("engine/recovery/recovery", "                self.seq = max(self.seq, <uint64_t> known[0])\n", ""),
        ("dftl",),
    ),
    "a short write that zeroes the sector after it": Bug(
        "ranges",
        Patch("engine/device/byte_requests", "                memcpy(ssd.edge + offset % ssd.page_bytes, data, take)\n",
              "                memcpy(ssd.edge + offset % ssd.page_bytes, data, take)\n"
              "                if (offset + take) % 512 == 0 and (offset + take) % ssd.page_bytes:\n"
              "                    memset(ssd.edge + offset % ssd.page_bytes + take, 0, 512)\n")
    ),
    "a trim that gives a page back of which it takes a part": Bug(
        "ranges",
        Patch("engine/device/byte_requests", "whole = 0 if offset % ssd.page_bytes else size // ssd.page_bytes\n",
                        "whole = 0 if offset % ssd.page_bytes else (size + ssd.page_bytes - 1) // ssd.page_bytes\n"
                        "        size = max(size, whole * ssd.page_bytes)\n")
    ),
    "a copy of a hole that leaves what was at its target": Bug(
        "ranges", Patch("engine/device/byte_requests", "            if seek_mapped(ssd, source, part, True) < part or "
                        "ssd.is_mapped(<uint32_t> (target // ssd.page_bytes)):\n",
                        "            if seek_mapped(ssd, source, part, True) < part:\n")
    ),
    "a data cache that keeps the last page of a short trim": Bug(
        "data cache", Patch("engine/device/ssd", "                for i in range(part):\n"
                            "                    self.cache.drop(lpa + i)\n",
                            "                for i in range(part - (1 < part < 8)):\n"
                            "                    self.cache.drop(lpa + i)\n")
    ),
    "a data cache that files a page under its neighbour": Bug(
        "data cache", Patch("engine/device/reader", "self.cache.put_run(lpas + i, run, into)",
                            "self.cache.put_run(lpas + i - (i > 0), run, into)")
    ),
    "a data cache that keeps what is written past the buffer": Bug(
        "data cache", Patch("engine/device/ssd", "            if self.cache.slots:\n"
                            "                self.cache.put_run(lpas + done, part, data)\n",
                            "            if self.cache.slots:\n"
                            "                self.cache.put_run(lpas + done, part - (part > 1), data)\n"
                            "                if part > 1:\n"
                            "                    self.cache.put(lpas[done + part - 1])\n")
    ),
    "a full list of trims whose last one is replaced": Bug(
        "metadata log", Patch("engine/device/ssd",
                              "                self.log_trims()\n            self.stopped = IN_TRIM\n",
                              "                if self.meta.pending_room == 255:\n"
                              "                    self.meta.pending_n -= 1\n"
                              "                else:\n"
                              "                    self.log_trims()\n"
                              "            self.stopped = IN_TRIM\n")
    ),
    "a trim record that grows over a write in between": Bug(
        "metadata log", Patch("engine/device/metalog", "return last.seq == seq and last.lpa + last.n == lpa",
                              "return last.lpa + last.n == lpa")
    ),
    "a trim page that says one record less": Bug(
        "metadata log", Patch("engine/device/metalog", "        memcpy(self.page + 4, &self.pending_n, 4)\n",
                              "        if self.pending_n > 31:\n            self.pending_n -= 1\n"
                              "        memcpy(self.page + 4, &self.pending_n, 4)\n")
    ),
    "a trim of what is in the NVRAM, off the record": Bug(
        "write buffer", Patch("engine/device/ssd", "any_lived |= self.buffer.drop(lpa + i) and self.buffer.in_nvram",
                              "self.buffer.drop(lpa + i)")
    ),
    "NVRAM slots that are used again before the next sync": Bug(
        "write buffer", Patch("engine/device/ssd",
                              "        if self.buffer.in_nvram:\n            self.barrier()  # from here",
                              "        if False:\n            self.barrier()  # from here")
    ),
    "a checkpoint that names pages that were not synced": Bug(
        "core", Patch("engine/device/ssd", "self.sync_image()  # a checkpoint may only name what",
                      "pass  # a checkpoint may only name what")
    ),
    "a mount mark that is not synced": Bug(
        "core", Patch("engine/device/ssd", "            self.meta.mark_mounted()\n        self.pad_pairs()\n"
                      "        self.sync_image()\n", "            self.meta.mark_mounted()\n        self.pad_pairs()\n")
    ),
    "marks of a sync that are made before it": Bug(
        "chip", Patch("nandimg/_chip", "        if durable and self.path is not None and fdatasync(self.fd) != 0:\n",
                      "        for i in range(self.blocks):\n"
                      "            if self.mark(i) + 1 < <uint32_t> self.pages_per_block and self.mark(i):\n"
                      "                self.write_entry(i, self.erases(i), self.mark(i) + 1, self.health(i))\n"
                      "        if durable and self.path is not None and fdatasync(self.fd) != 0:\n")
    ),
    "a page that was lost and is moved as if it were whole": Bug(
        "mover", Patch("engine/device/mover", "        oob.flags |= FLAG_LOST\n", "")
    ),
    "a changed page of the bitmap that leaves its frame without being programmed": Bug(
        "validity", Patch("parts/validity/flash_bitmap", "            self.program(self.frames[frame].id, "
                          "self.image(frame))\n", ""), (),
        "engine/test_flash_bitmap.py::test_contents_and_every_invariant_after_much_cleaning[1-1]",
    ),
    "a superblock that is opened without one die's block": Bug(
        "superblocks",
        Patch("parts/superblocks/superblocks",
              "self.to_open[stream * self.dies + die] = self.ssd.pool.state[block] == STATE_FREE",
              "self.to_open[stream * self.dies + die] = die != 1 and self.ssd.pool.state[block] == STATE_FREE"),
        (), "engine/test_groups.py::test_a_superblock_goes_without_a_block_that_is_bad",
    ),
    "a move of a group that is undone for its first victim alone": Bug(
        "recovery",
        Patch("engine/recovery/resolve", "            whole = group and move.group == group\n",
              "            whole = group and move.group == group and move.old // self.ssd.pages_per_block == (\n"
              "                <Move*> self.moves.at).old // self.ssd.pages_per_block\n"),
        (), "engine/test_groups.py::test_a_group_whose_last_page_is_missing_is_undone_whole",
    ),
    "a move that believes rotten data, but for a block's first page": Bug(
        "mover", Patch("engine/device/mover", "if (order and self.status[i] == PAGE_OK and", "if (order and"),
        (), "engine/test_edges_moves.py::test_rotten_data_behind_the_first_page_of_a_block_move_as_unreadable",
    ),
    "a chip without sums that takes what was there before an erase": Bug(
        "chip", Patch("nandimg/_chip", "        if epoch < now:\n            return False\n        copy_oob",
                      "        copy_oob"),
        (), "engine/test_edges_moves.py::test_records_from_before_an_erase_are_no_pages",
    ),
    "a recovery that leaves the hint of an older checkpoint, and erases that one": Bug(
        "recovery", Patch("engine/recovery/recovery", "self.ssd.meta.point_boot_nowhere(self.base.identity)\n",
                          "pass\n"),
        (), "crash/test_lost.py::test_is_survived[the power goes between a checkpoint and its hint, then in the erase "
        "of an older clean one]",
    ),
    "a battery that stays as it was though a recovery did not believe it": Bug(
        "battery", Patch("parts/battery/map_battery", "        self.words.disown(CAUSE_RECOVERY)\n", ""),
        (), "crash/test_lost.py::test_is_survived[a battery that a recovery did not believe, and the next one does: a "
        "block has the same number again]",
    ),
    "a page that is read wherever it lies": Bug(
        "core", Patch("engine/device/reader", "(oob.order == order or order == 0) and not oob",
                      "not oob"), (), "crash/test_lost.py::test_is_survived_where_pages_have_no_numbers[a page that "
        "was meant for another block lies where its own LPA shares a page]",
    ),
    "a life that counts the programs of this mount again at each checkpoint": Bug(
        "counters",
        Patch("engine/device/lifetime_counters.py", "self.programs + programs - (self.programs_of_mount if same else 0",
                          "self.programs + programs - (0"),
        (), "engine/test_life.py::test_programs_of_a_life_are_those_of_its_mounts[pagemap]",
    ),
    "a first erase that leaves records of an erase that the host lost": Bug(
        "chip", Patch("nandimg/_chip", "                    count = max(count, epoch)\n", "                    pass\n"),
        (), "nandimg/test_chip.py::test_the_first_erase_passes_records_of_an_erase_that_was_lost",
    ),
    "sparse tables whose records find no disk blocks waiting": Bug(
        "chip", Patch("nandimg/_chip", "        self.hold_records(block, page, n)\n", ""),
        (), "engine/test_sparse_tables.py::test_records_without_room_are_no_lost_tables",
    ),
    "an NBD client's flush that flushes nothing": Bug(
        "NBD", Patch("nbd/_plugin", "    return 0 if (<Export> of).run(FLUSH, <Quiet> do_flush, 0, 0, NULL) >= "
                     "0 else -1\n", "    return 0\n"), (), "nbd/test_nbd.py::test_what_was_flushed_outlives_a_kill",
    ),
    "a resized image whose bad blocks are good again": Bug(
        "resize", Patch("resizing.py", "old.chip.erase_count(block), old.chip.block_health(block))",
                        "old.chip.erase_count(block), 0)"),
        (), "engine/test_resizing.py::test_bad_blocks_and_modes_stay",
    ),
    "a clone that keeps the UUID of its original": Bug(
        "clone", Patch("nandimg/cloning.py", "    raw[UUID_AT : UUID_AT + 16] = uuids.uuid4().bytes\n", ""),
        (), "nandimg/test_cloning.py::test_a_copy_of_a_crashed_image_recovers_as_it_does[pagemap]",
    ),
    "an upgrade whose two headers are synced together": Bug(
        "upgrade", Patch("nandimg/header.py", "raw, index * HEADER_BYTES)\n        os.fdatasync(fd)\n",
                         "raw, index * HEADER_BYTES)\n    os.fdatasync(fd)\n"),
        (), "fixtures/test_version_1.py::test_the_host_may_die_at_any_moment[pagemap-crashed-equal]",
    ),
    "a recovery that makes no room where no block is free": Bug(
        "recovery", Patch("engine/recovery/recovery", "        self.find_room()\n", ""),
        (), "crash/test_lost.py::test_is_survived[much is spoilt at once, and older pages that count again leave no "
            "block free]",
    ),
    "a recovery that believes a first page which is older than the checkpoint": Bug(
        "recovery", Patch("engine/recovery/scan", "                self.trust_base(block)\n", ""), (),
        "engine/test_page_numbers.py::test_a_first_page_of_another_block_costs_no_page_but_its_own[pagemap]",
    ),
    "a sync for the log's block that begins another": Bug(
        "core", Patch("engine/device/ssd", "        if stream != STREAM_META:\n            return self.barrier()\n",
                      "        return self.barrier()\n"),
        (), "crash/test_lost.py::test_is_survived[a worn chip that is trimmed: muftl]",
    ),
    "a move whose source is emptied before its target is durable": Bug(
        "ranges", Patch("engine/device/byte_requests", "        t_ns = ssd.settle(t_ns)\n", ""),
        (), "engine/test_moves_durable.py::test_a_move_and_a_crash[dftl-0]",
    ),
    "trims of a move's source that are logged before NVRAM is durable": Bug(
        "core", Patch("engine/device/ssd", "        if self.moved:\n            self.moved = False\n",
                      "        if False:\n            self.moved = False\n"),
        (), "crash/test_lost.py::test_is_survived[the trim of a move's source is on the disk, and what NVRAM said of "
            "its target is lost]",
    ),
    "a log that each crash makes longer": Bug(
        "recovery", Patch("engine/recovery/recovery", "        if self.ssd.log_overgrown():\n", "        if False:\n"),
        (), "engine/test_many_lives.py::test_the_log_of_trims_leaves_room_on_the_smallest_chip[0-lazyftl]",
    ),
    "an erase that was cut, which the pages that it hurt do not say": Bug(
        "chip", Patch("nandimg/_chip", "            if epoch > now or check == begun:\n",
                      "            if epoch > now:\n"),
        (), "nandimg/test_chip.py::test_an_erase_that_was_cut_shows_in_its_pages_where_the_host_lost_the_table[prefix]",
    ),
    "a group of paired pages that is gone on with": Bug(
        "recovery", Patch("engine/recovery/recovery", "reopens and next_page % group == 0 and", "reopens and"),
        ("slimftl", "hpftl"),
    ),
    "two live pages of one name, of which neither is nobody's": Bug(
        "paged", Patch("parts/paged/part_pages", "                    nobody[0] = ppa\n                named[",
                       "                    pass\n                named["),
        (), "crash/test_lost.py::test_is_survived_where_pages_have_no_numbers[a misdirected page and a translation "
        "page that rots: tpftl]",
    ),
    "a live page of an LPA that holds nothing, which is somebody's": Bug(
        "paged", Patch("parts/paged/paged_map", "                    if ppas[i] == NONE:\n",
                       "                    if False:\n"),
        (), "engine/test_stray_pages.py::test_its_lpa_is_trimmed_before[dftl]",
    ),
    "what is nobody's, forgotten behind the first page that is made again": Bug(
        "paged", Patch("parts/paged/paged_map", "                nobody = self.nobody ", "                pass  #"),
        (), "crash/test_lost.py::test_is_survived[a misdirected page and translation pages that rot one after the "
            "other: leaftl]",
    ),
    "a block of a clean checkpoint that is erased before the newer hint is durable": Bug(
        "recovery", Patch("engine/device/ssd", "        if clean or self.hint_may_be_clean:\n", "        if clean:\n"),
        (), "crash/test_lost.py::test_is_survived[a clean checkpoint's block is erased and cut, and the host loses the "
            "newer hint]",
    ),
    "a battery that is believed though the log knows of a later trim": Bug(
        "battery", Patch("engine/recovery/recovery", "if seq < newest and self.is_from_before(ppa, newest):",
                         "if False:"),
        (), "crash/test_lost.py::test_is_survived[the record of a trim is on the disk, and the battery's words of "
            "before it: a page in NVRAM is older]",
    ),
    "blocks that wait until nothing in them lives, though no other is left": Bug(
        "cleaning", Patch("parts/defaults/defaults", "            waiting = self.ssd.victims.fewest_waiting()\n",
                          "            waiting = NONE\n"),
        (), "engine/test_paged_over_stores.py::test_power_cuts[dftl-flash-faults-800]",
    ),
    "pages that live in a block of metadata after a recovery": Bug(
        "recovery", Patch("engine/recovery/recovery", "hurt = self.forget_homeless() or self.torn", "hurt = self.torn"),
        (), "crash/test_lost.py::test_is_survived[two misdirected programs, and an entry that names a block which has "
            "metadata by now: lazyftl]",
    ),
    "superseded pages that are not let go of before a node of the tree": Bug(
        "paged", Patch("parts/paged/map_btree", "            self.mapping.store.make_way()   # what was cleaned "
                       "for that may have superseded pages too\n", ""),
        (), "crash/test_lost.py::test_is_survived[cleaning for a node of the tree supersedes pages too: one too many]",
    ),
    "a page that is not the host's, and dies for an LPA that strayed": Bug(
        "paged", Patch("parts/paged/paged_map", " or self.ssd.kind_of(block) != KIND_USER:\n            return True",
                       ":\n            return True"),
        (), "crash/test_lost.py::test_is_survived[a page of the validity log lies where the page lay to which LPAs "
            "strayed]",
    ),
    "a first page of another block that is believed against most others": Bug(
        "recovery", Patch("engine/recovery/scan", "        return agree > differ\n", "        return False\n"),
        (), "crash/test_lost.py::test_is_survived[the first page of a new block is another block's]",
    ),
    "a read that believes a first page of another block": Bug(
        "core", Patch("engine/device/reader", "        if agree <= differ:\n", "        if True:\n"),
        (), "crash/test_lost.py::test_is_survived[geckoftl: a recovery that scans nothing of a block believes its "
            "first page]",
    ),
    "of two LPAs at one page the lower one keeps it": Bug(
        "recovery", Patch("engine/recovery/mend", "next((lpa for lpa in lpas if self.is_of(at, lpa, 0)), lpas[0])",
                          "lpas[0]"),
        (), "crash/test_lost.py::test_is_survived[two LPAs at one page: the one whose page it is keeps it]",
    ),
    "a block that was left out of a recovery, and is vouched for": Bug(
        "recovery", Patch("engine/recovery/recovery", "            if self.marks[block] & EXCLUDED:\n",
                          "            if False:\n"),
        (), "crash/test_lost.py::test_is_survived[slimftl: a block that one recovery left out, and vouched for, is "
            "believed by the next]",
    ),
    "a block that no sync has counted, and no recovery vouches for": Bug(
        "recovery", Patch("engine/recovery/recovery", "                self.vouch_unread(block)\n",
                          "                pass\n"),
        (), "crash/test_lost.py::test_is_survived[a block that no sync has counted, after a recovery that scanned "
            "nothing: dftl]",
    ),
    "an original that counts again, and that nobody looked at": Bug(
        "recovery", Patch("engine/recovery/resolve", "        if self.full_read(move.old, &oob) != PAGE_OK:\n",
                          "        if False:\n"),
        (), "engine/test_undone_moves.py::test_an_original_that_cannot_be_read_is_no_reason_to_drop_its_copy",
    ),
    "free blocks of undone copies that stay flushed": Bug(
        "recovery", Patch("engine/recovery/recovery", "                self.ssd.nand.disclaim(block)\n",
                          "                pass\n"),
        (), "engine/test_undone_moves.py::test_what_an_undone_move_copied_is_not_listed_as_flushed",
    ),
    "a copy of which the move was undone, taken for an original": Bug(
        "recovery", Patch("engine/recovery/resolve",
                          "            if entry_flags(of + i) >> MOVES_SHIFT != entry_flags(best) >> MOVES_SHIFT:\n",
                          "            if True:\n"),
        (), "engine/test_undone_moves.py::test_a_copy_of_which_the_move_was_undone_is_nobodys_original",
    ),
    "ones of a checkpoint that come back as zeros": Bug(
        "metadata log", Patch("engine/device/metalog", "FILLS = {FILL_ONES: 0xFF, ", "FILLS = {FILL_ONES: 0, "),
        (), "engine/test_checkpoint_fills.py::test_what_nobody_wrote_to_takes_no_page_and_comes_back[pagemap]",
    ),
    "a fill that is one page too long": Bug(
        "metadata log", Patch("engine/device/metalog", "            if word != fill:\n                return pages\n",
                              "            if word != fill:\n                return pages + 1 if pages else 0\n"),
        (), "engine/test_checkpoint_fills.py::test_what_nobody_wrote_to_takes_no_page_and_comes_back[pagemap]",
    ),
    "pages that fill up a block, and keep a victim alive": Bug(
        "recovery", Patch("engine/recovery/resolve",
                          "                if oob.kind != KIND_USER and oob.kind != KIND_PAD:\n",
                          "                if oob.kind != KIND_USER:\n"),
        (), "engine/test_undone_moves.py::test_pages_that_fill_up_a_block_keep_no_victim_alive",
    ),
}  # fmt: skip
for listed in sorted((ROOT / "tests" / "ftl").glob("*/bugs.toml")):
    BUGS |= of_a_room(listed)
