"""Chips by name: the set-up of each paper, that of the WAF oracle, and small ones for exhaustive tests.

Times that a paper does not give are Geometry's defaults; the transfer of a page assumes about 800 MB/s per channel.
"""

from __future__ import annotations

from dataclasses import dataclass

from nandimg.geometry import Geometry

MIB, GIB = 2**20, 2**30


@dataclass(frozen=True, slots=True)
class Preset:
    """A geometry with a name, what it is for, and where its figures come from."""

    name: str
    about: str
    source: str
    geometry: Geometry

    @property
    def for_tests(self) -> bool:
        """Whether it is so small that it is only for tests."""
        return self.name.startswith("tiny-")


def _slimftl(dies: int = 1) -> Geometry:
    # 16 GiB of 8 KiB pages; the thesis has 9,011 blocks for 10 % over-provisioning, here rounded up to a multiple of
    # the dies
    return Geometry(
        page_bytes=8192, pages_per_block=256, blocks=-(-9011 // dies) * dies, channels=dies, dies=dies, oob_bytes=256,
        lpas=16 * GIB // 8192, transfer_ns=10_000,
    )  # fmt: skip


def _geckoftl(blocks: int) -> Geometry:
    # the paper's K = 2^22 blocks of B = 128 pages of 4 KiB is 2 TiB of flash; R = 0.7 of it is logical
    return Geometry(
        page_bytes=4096, pages_per_block=128, blocks=blocks, channels=1, dies=1, oob_bytes=128,
        lpas=int(0.7 * 128 * blocks), read_ns=100_000, program_ns=1_000_000, erase_ns=2_000_000, transfer_ns=0,
        spare_ns=3_000,
    )  # fmt: skip


def _leaftl(size_bytes: int) -> Geometry:
    return Geometry.sized(
        size_bytes, op=0.2, page_bytes=4096, pages_per_block=256, channels=16, dies=16, oob_bytes=160,
        read_ns=20_000, program_ns=200_000, erase_ns=1_500_000,
    )  # fmt: skip


def _learnedftl(size_bytes: int, spare_bytes: int, pages_per_block: int) -> Geometry:
    # 64 chips of 256 blocks of 512 pages hold the paper's 32 GiB; the further 2 GiB are 16 more blocks per chip. The
    # paper measures with FEMU's clock, which charges chips only: transfers take no time
    return Geometry.sized(
        size_bytes, op=spare_bytes / size_bytes, page_bytes=4096, pages_per_block=pages_per_block, channels=8, dies=64,
        oob_bytes=128, read_ns=40_000, program_ns=200_000, erase_ns=2_000_000, transfer_ns=0,
    )  # fmt: skip


def _remapssd(
    size_bytes: int, spare_bytes: int, nvram_bytes: int, pages_per_block: int = 1024, dies: int = 16
) -> Geometry:  # fmt: skip
    return Geometry.sized(
        size_bytes, op=spare_bytes / size_bytes, page_bytes=4096, pages_per_block=pages_per_block, channels=16,
        dies=dies, oob_bytes=128, nvram_bytes=nvram_bytes, read_ns=50_000, program_ns=500_000, erase_ns=5_000_000,
        nvram_read_ns=50, nvram_write_ns=500,
    )  # fmt: skip


def _tiny(blocks: int, pages: int, lpas: int, dies: int = 1, paired: int = 0, page_bytes: int = 512) -> Geometry:
    return Geometry(
        page_bytes=page_bytes, pages_per_block=pages, blocks=blocks, channels=1, dies=dies, oob_bytes=64, lpas=lpas,
        nvram_bytes=32 * page_bytes, paired_pages=paired,
    )  # fmt: skip


_ALL = [
    Preset("oracle-1g", "greedy GC against its known WAF: one die, 222,822 pages exported", "FIFO/greedy analysis",
           Geometry()),
    Preset("slimftl-16g", "16 GiB, 8 KiB pages, 9,011 blocks", "SlimFTL thesis 2020, table 1", _slimftl()),
    Preset("slimftl-16g-8d", "the same on eight dies, each with a channel", "SlimFTL thesis 2020, table 1",
           _slimftl(8)),
    Preset("geckoftl-2t", "2 TiB of flash, 128 pages per block, R = 0.7", "GeckoFTL, SIGMOD'16, section 5",
           _geckoftl(2**22)),
    Preset("geckoftl-32g", "the same at 1/64: 32 GiB of flash", "GeckoFTL, scaled down", _geckoftl(2**16)),
    Preset("geckoftl-4g", "the same at 1/512: 4 GiB of flash", "GeckoFTL, scaled down", _geckoftl(2**13)),
    Preset("leaftl-2t", "2 TiB, 16 channels, 20/200/1500 us", "LeaFTL, ASPLOS'23, table 1", _leaftl(2**41)),
    Preset("leaftl-8g", "the same at 1/256: 8 GiB, for 4 MiB of DRAM", "LeaFTL, scaled down", _leaftl(2**33)),
    Preset("learnedftl-32g", "32 + 2 GiB, 8 channels x 8 chips, 40/200/2000 us", "LearnedFTL, HPCA'24",
           _learnedftl(32 * GIB, 2 * GIB, 512)),
    Preset("learnedftl-4g", "4 + 0.25 GiB, 64 pages per block", "LearnedFTL, scaled down",
           _learnedftl(4 * GIB, GIB // 4, 64)),
    Preset("remapssd-32g", "32 + 4 GiB, superblocks over 16 dies, 80 MiB NVRAM", "Remap-SSD, FAST'21",
           _remapssd(32 * GIB, 4 * GIB, 80 * MIB)),
    Preset("remapssd-256g", "256 + 32 GiB, 32 dies, 640 MiB NVRAM", "Remap-SSD, FAST'21, figure 6",
           _remapssd(256 * GIB, 32 * GIB, 640 * MIB, dies=32)),
    Preset("remapssd-2g", "2 + 0.25 GiB, 64 pages per block, 5 MiB NVRAM", "Remap-SSD, scaled down",
           _remapssd(2 * GIB, GIB // 4, 5 * MIB, pages_per_block=64)),
    Preset("remapssd-16g", "16 + 2 GiB, 32 dies, 64 pages per block, 40 MiB NVRAM", "Remap-SSD, figure 6 scaled down",
           _remapssd(16 * GIB, 2 * GIB, 40 * MIB, pages_per_block=64, dies=32)),
    Preset("small-64m", "64 MiB, two channels, four dies: a first mount", "for trying things",
           Geometry.sized(64 * 2**20, op=0.25, pages_per_block=64, channels=2, dies=4, nvram_bytes=4 * 2**20)),
    Preset("demo-1g", "1 GiB, four channels, eight dies: a file system's worth", "for trying things",
           Geometry.sized(GIB, op=0.15, pages_per_block=256, channels=4, dies=8, nvram_bytes=4 * 2**20)),
    Preset("tiny-8", "8 blocks of 4 pages of 512 B", "the smallest chip: every power cut by brute force",
           _tiny(8, 4, 8)),
    Preset("tiny-16", "16 blocks of 8 pages of 512 B", "small enough to enumerate", _tiny(16, 8, 56)),
    Preset("tiny-32", "32 blocks of 8 pages of 512 B", "small, with room for translation pages", _tiny(32, 8, 150)),
    Preset("tiny-96", "96 blocks of 4 pages: neighbours outnumber their candidates' pages, so SlimFTL shares blocks",
           "for what a hash can run into", _tiny(96, 4, 300)),
    Preset("tiny-96q", "96 blocks of 4 pages on four dies: streams as wide as the chip, and always cleaning",
           "striping while space is short", _tiny(96, 4, 110, dies=4)),
    Preset("tiny-288", "288 blocks of 8 pages on eight dies, and many to spare: all streams are as wide as the chip, "
           "that of the map too", "pages of metadata on many dies", _tiny(288, 8, 900, dies=8)),
    Preset("tiny-100d", "100 blocks of 4 pages on two dies, five eighths of them data: cleaning, and no block to spare "
           "between two syncs", "order that only a sync keeps", _tiny(100, 4, 251, dies=2)),
    Preset("tiny-20p", "20 blocks of 8 pages of 512 B, in pairs two pages apart: an interrupted upper page takes its "
           "lower page along", "two bits per cell", _tiny(20, 8, 56, paired=2)),
    Preset("tiny-16k", "16 blocks of 8 pages of 4 KiB", "pages that are written in part",
           _tiny(16, 8, 56, page_bytes=4096)),
    Preset("tiny-600k", "40 blocks of 32 pages of 4 KiB: more single pages to trim than a list of trims holds",
           "what a page of 4 KiB has to fill up", _tiny(40, 32, 600, page_bytes=4096)),
    Preset("tiny-1600", "72 blocks of 32 pages of 512 B: a map of over a thousand entries, seven groups of LeaFTL's",
           "tables that split and merge", _tiny(72, 32, 1600, dies=2)),
    Preset("tiny-1536", "120 blocks of 16 pages of 512 B: a map of twelve translation pages, many blocks to spare",
           "pages of metadata that are never written again", _tiny(120, 16, 1536)),
    Preset("tiny-1330", "366 blocks of 4 pages of 512 B, all but full: so many of SlimFTL's pages share a first "
           "candidate that it stops counting those placed elsewhere", "counts that come to their end",
           _tiny(366, 4, 1330)),
    Preset("tiny-112", "112 blocks of 8 pages of 512 B: five translation pages, which at a fanout of two have three "
           "nodes above them, and those two", "a map that is a tree in flash", _tiny(112, 8, 520)),
    Preset("tiny-24d", "24 blocks of 8 pages on two dies", "striping on a small chip", _tiny(24, 8, 80, dies=2)),
    Preset("tiny-48", "48 blocks of 8 pages of 512 B", "small, with room for a map and its validity in flash",
           _tiny(48, 8, 150)),
    Preset("tiny-48d", "48 blocks of 8 pages on two dies", "the same, striped", _tiny(48, 8, 150, dies=2)),
    Preset("tiny-48p", "48 blocks of 8 pages of 512 B, in pairs two pages apart", "the same, two bits per cell",
           _tiny(48, 8, 120, paired=2)),
    Preset("tiny-48k", "48 blocks of 8 pages of 4 KiB", "the same, pages that are written in part",
           _tiny(48, 8, 150, page_bytes=4096)),
]  # fmt: skip

PRESETS: dict[str, Preset] = {preset.name: preset for preset in _ALL}
