"""Random programs of host requests, and the settings that they run in, from a seed."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any

from flashfs.budget import packed
from flashfs.crash.bench import Bench
from flashfs.crash.cases import Case, Later, geometry_named
from flashfs.crash.grammar import SECTOR
from flashfs.errors import BindError, FlashfsError, UsageError
from flashfs.ftl import ENGINE_OPTIONS, SCHEMES, Option, scheme
from nandimg import Geometry, GeometryError

TINY = ("tiny-8", "tiny-16", "tiny-24d", "tiny-20p", "tiny-16k")
#: instead of those, for schemes whose metadata in flash does not fit them
ROOMY = ("tiny-48", "tiny-48d", "tiny-48p", "tiny-48k")
CROWDED = "tiny-96"  #: filled first, so that neighbours compete for the few places that a hash gives them
#: overwritten several times first, until streams that are several blocks wide run short of space
STRIPED = ("tiny-96q", "tiny-100d")
#: beside the others, now and then: pages of a map lie on eight dies, and each stream has eight open blocks; or it has
#: another shape
MANY_DIES = "tiny-288"
SHAPES_TRIED = 4
PAGES_MOST = 2_500  #: of a chip of another shape: each of its cases fills it twice
#: filled first as well, in this order of groups of 256 LPAs (none: from the first on): lists of trims fill up, tables
#: have pages to split and to merge, counts of pages that a hash had to place elsewhere reach their limit
LARGE = {"tiny-600k": (), "tiny-1600": (), "tiny-1330": (0, 3, 4, 5, 1, 2)}
#: filled too; then scattered single writes, with many writes to one place in between: all translation pages but one
#: stay where they are
PINNED = ("tiny-1536",)
GROUP = 256  #: LPAs that a scheme may treat as one group: requests near its borders are worth testing
#: weights of a write of one page, of several, a trim, a flush, an idle moment, a remount
MOODS = ((55, 10, 10, 13, 6, 6), (45, 10, 10, 5, 5, 25), (60, 20, 15, 2, 3, 0))
#: values of the engine's options to try; a scheme lists its own (Option.edges, Scheme.tight)
ENGINE_EDGES: dict[str, tuple[int | str, ...]] = {
    "buffer": (-1, 0, 1, 2, 4), "wear_spread": (0, 2), "wear": ("exact", "scan"), "wear_reads": (1, 2, 8),
    "gc_reserve": (0, 1, 2, 3), "checkpoint_every": (0, 1, 4, 9),
}  # fmt: skip
#: chips that `flashfs create --size` makes; a program reads and writes all of it more than once
CREATED = ("create-1M", "create-2M", "create-4M")
SELDOM = ("create-8M", "create-16M")
LARGEST = "create-64M"  #: a run takes a second, and each fork needs 64 MiB of memory
CACHE_SLOT = 20  #: bytes of the data cache beside each page
SPOILT_AGAIN = ("xm", "xm", "xm", "xh", "xp", "xt", "xn")  #: words of a chip that decays, mostly pages of the map
SHORT_OF_DEFAULTS = 0.4  #: of the budgets, if the FTL has a cache that can be smaller than by default


def random_program(rnd: random.Random, pages: int, length: int, page_bytes: int = 0) -> str:
    """Mostly writes, of few pages and often the same ones; trims, flushes, idle moments, remounts. If ``page_bytes`` is
    not 0, also requests for parts of pages, copies, rows of single-page requests and reads of everything."""
    words = []
    hot = [rnd.randrange(pages) for _ in range(3)]
    weights = rnd.choices(MOODS, weights=(6, 1, 1))[0]
    for _ in range(length):
        lpa = rnd.choice(hot) if rnd.random() < 0.3 else rnd.randrange(pages)
        if page_bytes and rnd.random() < 0.25:
            words.append(odd_word(rnd, pages, page_bytes, lpa))
            continue
        span = rnd.randint(1, min(4, pages - lpa))
        kinds = (f"w{lpa}", f"w{lpa}+{span}", f"t{lpa}+{span}", "f", "i", "r")
        words.append(rnd.choices(kinds, weights=weights)[0])
    return " ".join(words)


def trimmed_program(rnd: random.Random, pages: int, length: int) -> str:
    """Mostly trims, of one page up to much of the device, or in rows; some writes between, and a few flushes: lists and
    logs of trims grow, and hold trims from the whole life."""
    words = [f"w0+{pages}"] * (rnd.random() < 0.5)
    for _ in range(length):
        lpa = rnd.randrange(pages)
        apart = rnd.choice((2, 2, 3))
        row = rnd.randint(1, (pages - 1 - lpa) // apart + 1)
        long = rnd.randint(1, min(pages - lpa, rnd.choice((1, 6, pages))))
        kinds = (f"t{lpa}+{long}", f"t{lpa}+{row}/{apart}", f"w{lpa}+{min(long, 8)}", "f", "i", "r")
        words.append(rnd.choices(kinds, weights=(35, 15, 32, 10, 4, 4))[0])
    return " ".join(words)


def sharing_program(rnd: random.Random, pages: int, length: int) -> str:
    """Makes pages that many LPAs share: remaps that double a range, or of one page to up to 40 places; then sharers are
    written, trimmed and moved, and remaps follow again."""
    words = [f"w0+{rnd.randint(1, max(1, pages // 4))}"] + ["f"] * (rnd.random() < 0.5)
    for _ in range(length):
        if rnd.random() < 0.25:  # doubling
            n = 1
            while 2 * n <= pages:
                words.append(f"p0-{n}+{n}")
                n *= 2
        elif rnd.random() < 0.4:
            source = rnd.randrange(pages)
            many = rnd.sample(range(pages), min(pages, rnd.choice((3, 15, 16, 17, 40))))
            words += [f"p{source}-{target}+1" for target in many if target != source]
        for _ in range(rnd.randint(1, 8)):
            lpa = rnd.randrange(pages)
            span = rnd.randint(1, min(5, pages - lpa))
            kinds = (f"w{lpa}+{span}", f"t{lpa}+{span}", f"m{lpa}-{(lpa + 1) % pages}+1", "f", "i", "r")
            words.append(rnd.choices(kinds, weights=(50, 15, 10, 15, 4, 6))[0])
    return " ".join(words)


def odd_word(rnd: random.Random, pages: int, page_bytes: int, lpa: int, most: int = 4) -> str:
    """A request for a part of a page, a copy, a row of requests of one page each, or a read of everything."""
    kind = rnd.choices(("part", "copy", "row", "look"), weights=(50, 20, 10, 20))[0]
    if kind == "part":
        return rnd.choice("wwt") + part_of(rnd, pages, page_bytes, lpa, most)
    if kind == "copy" and pages > 2:
        return copy_word(rnd, pages, page_bytes, most)
    if kind == "row":
        apart = rnd.choice((2, 2, 3))
        count = rnd.randint(1, min(4 * most, (pages - 1 - lpa) // apart + 1))
        return f"{rnd.choice('wtt')}{lpa}+{count}/{apart}"
    return "R"


def part_of(rnd: random.Random, pages: int, page_bytes: int, lpa: int, most: int) -> str:
    """Some sectors or bytes from somewhere in ``lpa`` on; two times in three within that page."""
    sign, unit = rnd.choice(((".", SECTOR), (".", SECTOR), (":", 1))) if page_bytes > SECTOR else (":", 1)
    room = page_bytes // unit
    at = rnd.randrange(room)
    left = room - at if rnd.random() < 0.67 else (min(pages - lpa, most) - 1) * room + room - at
    return f"{lpa}{sign}{at}+{rnd.randint(1, left)}"


def copy_word(rnd: random.Random, pages: int, page_bytes: int, most: int) -> str:
    """A copy from one half of the device to the other: of pages, or of sectors of any alignment."""
    n = rnd.randint(1, max(1, min(most, pages // 2 - 1)))
    low, high = rnd.randrange(pages // 2 - n + 1), rnd.randrange(pages // 2, pages - n + 1)
    source, target = rnd.choice(((low, high), (high, low)))
    if page_bytes == SECTOR or rnd.random() < 0.5 or n == 1:
        return f"c{source}-{target}+{n}"
    room = page_bytes // SECTOR
    count = rnd.randint(1, (n - 1) * room)
    return f"c{source}.{rnd.randrange(room)}-{target}.{rnd.randrange(room)}+{count}"


def with_remaps(rnd: random.Random, program: str, pages: int, page_bytes: int) -> str:
    """The program for a scheme that remaps: after one word in three comes one that remaps pages, or some of their
    sectors, to a random place or a nearby one; often from the first page on, which many LPAs then share."""
    words = []
    most = rnd.choice((2, 5, 20))
    for word in program.split():
        words.append(word)
        if pages > 2 and rnd.random() < 0.35:
            words.append(remap_word(rnd, pages, page_bytes, most))
    return " ".join(words)


def remap_word(rnd: random.Random, pages: int, page_bytes: int, most: int) -> str:
    kind = rnd.choice("pppme")
    n = rnd.randint(1, max(1, min(most, pages // 2)))
    source = rnd.choice((0, rnd.randrange(pages - n + 1), rnd.randrange(pages - n + 1)))
    target = rnd.randrange(pages - n + 1)
    if rnd.random() < 0.25:                # over itself
        target = min(pages - n, max(0, source + rnd.randint(-n, n)))
    if n == 1 or page_bytes == SECTOR or rnd.random() < 0.8:
        return f"{kind}{source}-{target}+{n}"
    room = page_bytes // SECTOR
    at = rnd.randrange(room)
    return f"{kind}{source}.{at}-{target}.{rnd.choice((at, rnd.randrange(room)))}+{rnd.randint(1, (n - 1) * room)}"


def wide_program(
    rnd: random.Random, geometry: Geometry, length: int, order: tuple[int, ...] = (), odd: bool = True
) -> str:  # fmt: skip
    """Fills the device, group by group if there is an ``order``; then long requests, rows of trims that fill lists, and
    words of random programs, often near the borders of groups of LPAs. Without ``odd``, only whole pages."""
    pages = geometry.lpas
    words = [f"w{group * GROUP}+{min(GROUP, pages - group * GROUP)}" for group in order] or [f"w0+{pages}"]
    words += [f"w0+{pages}"] * (rnd.random() < 0.3)  # then cleaning is near
    words += ["f"] * (rnd.random() < 0.8)
    for _ in range(length):
        lpa = near(rnd, pages)
        weights = (20, 12, 14, 8, 30, 16 * odd)
        kind = rnd.choices(("write", "row", "trims", "trim", "few", "odd"), weights=weights)[0]
        apart = rnd.choice((2, 2, 3, 7))
        count = rnd.randint(1, min(400, (pages - 1 - lpa) // apart + 1))
        if kind == "write":
            words.append(f"w{lpa}+{rnd.randint(1, min(pages - lpa, rnd.choice((20, 300))))}")
        elif kind == "trims" and rnd.random() < 0.4:
            words.append(f"t{rnd.randrange(8)}+{(pages - 8) // 2}/2")
        elif kind in ("row", "trims"):
            words.append(f"{'w' if kind == 'row' else 't'}{lpa}+{count}/{apart}")
        elif kind == "trim":
            words.append(f"t{lpa}+{rnd.randint(1, min(pages - lpa, rnd.choice((2, 40, 300))))}")
        elif kind == "few":
            words.append(random_program(rnd, pages, 1))
        else:
            words.append(odd_word(rnd, pages, geometry.page_bytes, lpa, 16))
    return " ".join(words)


def aged_program(rnd: random.Random, pages: int, length: int) -> str:
    """Writes the device more than twice over, perhaps with a flush; then writes of few pages with hardly a flush: the
    device must clean, and must sync by itself."""
    words = [f"w0+{pages}", f"w0+{pages}", f"w0+{rnd.randint(pages // 5, pages)}"]
    words += ["f"] * (rnd.random() < 0.7)
    flushes = rnd.choice((1, 4))
    for _ in range(length):
        lpa = rnd.randrange(pages)
        kinds = (f"w{lpa}+{rnd.randint(1, min(6, pages - lpa))}", "f", f"t{lpa}", "i")
        words.append(rnd.choices(kinds, weights=(92 - flushes, flushes, 4, 4))[0])
    return " ".join(words)


def decayed_program(rnd: random.Random, pages: int) -> str:
    """Fills the device twice; then spoils pages again and again between writes, rows and trims of up to half of it:
    what is made again, moved and cleaned after one loss meets the next."""
    words = [f"w0+{pages}", f"w0+{pages}", "f"]
    for _ in range(rnd.randint(20, 70)):
        lpa = rnd.randrange(pages)
        long = rnd.randint(1, min(pages - lpa, rnd.choice((4, 40, pages // 2))))
        apart = rnd.choice((2, 3))
        row = rnd.randint(1, (pages - 1 - lpa) // apart + 1)
        kinds = (f"w{lpa}+{long}", f"w{lpa}", f"w{lpa}+{row}/{apart}", f"t{lpa}+{row}/{apart}", f"t{lpa}",
                 rnd.choice("fir"), rnd.choice(SPOILT_AGAIN))  # fmt: skip
        words.append(rnd.choices(kinds, weights=(30, 20, 10, 15, 10, 7, 8))[0])
    return " ".join(words)


def near(rnd: random.Random, pages: int) -> int:
    """An LPA, often one near the border of a group."""
    if rnd.random() < 0.6:
        return rnd.randrange(pages)
    return min(pages - 1, max(0, rnd.randrange(0, pages + 1, GROUP) + rnd.randint(-3, 3)))


def random_options(rnd: random.Random, ftl: str, plp: bool) -> tuple[tuple[str, Any], ...]:
    """A random choice of the engine's options and of the scheme's own, fixed ones too."""
    options: list[tuple[str, Any]] = [("buffer", rnd.choice(ENGINE_EDGES["buffer"]) or int(plp))]
    for option in ENGINE_OPTIONS:
        if option.name != "buffer" and rnd.random() < 0.15:
            options.append((option.name, rnd.choice(edges(ftl, option))))
    for option in scheme(ftl).options:
        if rnd.random() < 0.3:
            options.append((option.name, rnd.choice(edges(ftl, option))))
    return tuple(options)


def edges(ftl: str, option: Option) -> tuple[int | str, ...]:
    """Values of an option to try: its own edges, and those at which the scheme's tables have least room."""
    if option in ENGINE_OPTIONS:
        return ENGINE_EDGES[option.name]
    return tuple(dict.fromkeys((*option.edges(), *scheme(ftl).tight.get(option.name, ()))))


def filled(rnd: random.Random, ftl: str, preset: str) -> tuple[tuple[str, int], ...]:
    """Geometry fields with as many LPAs as make that chip 55 to 95 % full, or fewer if the FTL takes no more; () if
    none fits."""
    geometry = geometry_named(preset)
    pages = geometry.blocks * geometry.pages_per_block
    for percent in range(rnd.randint(55, 95), 54, -5):
        chip = (("lpas", pages * percent // 100),)
        if pages * percent // 100 > geometry.lpas and fits(Case(ftl, "", preset, chip=chip)):
            return chip
    return ()


def another_shape(rnd: random.Random, ftl: str) -> tuple[tuple[str, int], ...]:
    """Geometry fields of any small chip that the FTL takes: dies, blocks, pages of a block, paired pages, and so many
    LPAs that it is 30 to 93 % full; () if it took none of a few."""
    for _ in range(SHAPES_TRIED):
        dies, per_block = rnd.choice((1, 2, 4, 8)), rnd.choice((4, 8, 8, 16, 32))
        blocks = dies * rnd.randint(max(2, 16 // dies), max(3, PAGES_MOST // per_block // dies))
        pages = min(blocks * per_block, PAGES_MOST)
        chip = (
            ("dies", dies),
            ("pages_per_block", per_block),
            ("blocks", pages // per_block // dies * dies),
            ("lpas", pages * rnd.choice((30, 50, 70, 80, 88, 93 if pages < PAGES_MOST // 2 else 85)) // 100),
            ("paired_pages", rnd.choice((0, 0, 0, 1, 2)) if per_block >= 8 else 0),
        )
        if fits(Case(ftl, "", MANY_DIES, chip=chip)):
            return chip
    return ()


def short_blocks(case: Case) -> Case:
    """The case on a chip with the same number of pages, four per block, if its FTL accepts that. There an interrupted
    erase may leave a checkpoint's descriptor and destroy the page after it, which is the mark of a mount."""
    geometry = case.geometry
    blocks = geometry.blocks * geometry.pages_per_block // 4
    other = replace(case, chip=(("pages_per_block", 4), ("blocks", blocks), *case.chip))
    return other if not geometry.paired_pages and not case.chip and fits_at_each_mount(other) else case


def tightened(rnd: random.Random, case: Case) -> Case:
    """The case on a chip of as few blocks as its FTL accepts with these options, or one or two more per die; one case
    in four has paired pages."""
    before, geometry = case, case.geometry
    if geometry.pages_per_block % 4 == 0 and geometry.pages_per_block > 4 and rnd.random() < 0.25:
        case = replace(case, chip=(*case.chip, ("paired_pages", 2)))

    def of(superblocks: int) -> Case:
        return replace(case, chip=(("blocks", superblocks * geometry.dies), *case.chip))

    low, high = 0, geometry.blocks // geometry.dies
    if not fits(of(high)):
        return before
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(of(middle)) else (middle, high)
    larger = of(min(geometry.blocks // geometry.dies, high + rnd.choice((0, 0, 1, 2))))
    return larger if fits(larger) else of(high)  # the tables of more blocks may not fit


def random_later(rnd: random.Random, case: Case, *, host: bool = False) -> Case:
    """The case with options, power-loss protection or the sync mode changed from some mount on, as far as the chip has
    room. ``host``: the host dies, so the sync mode stays: a mount without syncs promises nothing then."""
    changeable = [option for option in scheme(case.ftl).options if not option.fixed]
    for _ in range(rnd.choice((1, 1, 2, 3))):
        mount = rnd.choice((1, 1, 2, 2, 3, 4))
        kind = rnd.random()
        if kind < 0.15 and case.plp:
            one = Later(mount, "plp", rnd.choice("01"))
        elif kind < 0.3 and not host:
            one = Later(mount, "sync", rnd.choice(("none", "none", "flush")))
        else:
            option = rnd.choice(ENGINE_OPTIONS if kind < 0.45 or not changeable else changeable)
            one = Later(mount, option.name, str(rnd.choice(edges(case.ftl, option))))
        more = replace(case, later=tuple(sorted((*case.later, one), key=lambda it: it.mount)))
        if fits_at_each_mount(more):
            case = more
    return case


def fits_at_each_mount(case: Case) -> bool:
    """As ``fits``, with the settings of each mount."""
    try:
        bench = Bench(case)
        try:
            for mount in {one.mount for one in case.later}:
                bench.mounts = mount
                bench.build(bench.settings())
        finally:
            bench.release(unused=True)
    except (BindError, UsageError, GeometryError):
        return False
    return True


def random_setting(
    rnd: random.Random, ftl: str, preset: str, *, odd: bool = True, aged: bool = False, host: bool = False,
    trims: bool = False,
) -> Case:  # fmt: skip
    """A random program on that chip, with random options (also the scheme's own), changes at later mounts, and a DRAM
    budget; no cut yet. Without ``odd`` its requests are for whole pages. ``aged``: the chip needs cleaning. ``host``:
    the host will die. ``trims``: a long program, mostly of trims."""
    large = preset in large_for(ftl)
    chip = filled(rnd, ftl, preset) if not large and preset != MANY_DIES and rnd.random() < 0.15 else ()
    if preset == MANY_DIES and rnd.random() < 0.6:
        chip = another_shape(rnd, ftl)
    geometry = Case(ftl, "", preset, chip=chip).geometry
    program = drawn(rnd, ftl, preset, geometry, odd, aged, trims)
    plp = rnd.random() < 0.15
    case = Case(ftl, program, preset, options=random_options(rnd, ftl, plp), plp=plp, chip=chip)
    if large and rnd.random() < 0.7:
        tight = {name: rnd.choice(values) for name, values in scheme(ftl).tight.items()}
        case = replace(case, options=tuple({**dict(case.options), **tight}.items()))
    case = with_room(case)
    if not large and rnd.random() < 0.15 and "blocks" not in dict(chip):
        case = tightened(rnd, case)
    case = budgeted(rnd, case) if rnd.random() < (0.5 if large else 0.3) else case
    case = random_later(rnd, case, host=host) if rnd.random() < 0.3 else case
    return replace(case, fills=1) if rnd.random() < 0.3 else case


def drawn(
    rnd: random.Random, ftl: str, preset: str, geometry: Geometry, odd: bool, aged: bool, trims: bool
) -> str:  # fmt: skip
    """The program for random_setting."""
    length = rnd.choice((12, 24, 40, 90))
    if preset in PINNED:
        program = pinned_program(rnd, geometry)
    elif trims:
        program = trimmed_program(rnd, geometry.lpas, rnd.choice((60, 120, 250)))
    elif preset in large_for(ftl) or preset in (*CREATED, *SELDOM, LARGEST):
        program = wide_program(rnd, geometry, min(length, 40), LARGE.get(preset, ()), odd)
    elif preset in (*STRIPED, MANY_DIES) or aged:
        program = aged_program(rnd, geometry.lpas, rnd.choice((20, 60, 120, 250)))
    else:
        program = random_program(rnd, geometry.lpas, length, geometry.page_bytes if odd else 0)
    if scheme(ftl).remaps and rnd.random() < 0.15 and geometry.lpas > 2:
        program = sharing_program(rnd, geometry.lpas, length // 6)
    elif scheme(ftl).remaps:
        program = with_remaps(rnd, program, geometry.lpas, geometry.page_bytes)
    if preset == CROWDED:
        program = f"w0+{rnd.choice((256, 300))} {program}"
    return program


def with_room(case: Case) -> Case:
    """The case, with options removed one by one until it fits its chip."""
    own = [option.name for option in scheme(case.ftl).options]
    among = ("gc_reserve", *dict.fromkeys((*scheme(case.ftl).tight, *own)))
    left = [name for name in among if name in dict(case.options)]
    while left and not fits(case):
        case = replace(case, options=tuple(pair for pair in case.options if pair[0] != left[0]))
        del left[0]
    return case


def pinned_program(rnd: random.Random, geometry: Geometry) -> str:
    """Fills the device; then writes one page in each translation page's range of LPAs in turn, and in between a row of
    pages in a single hot range: blocks that keep a single live page of metadata, which stays live."""
    each = geometry.page_bytes // 4
    groups = list(range(0, geometry.lpas, each))
    hot = groups.pop(rnd.randrange(len(groups)))
    words = [f"w0+{geometry.lpas}"] + ["f"] * (rnd.random() < 0.8)
    for _ in range(rnd.choice((1, 1, 2))):
        rnd.shuffle(groups)
        for first in groups:
            words.append(f"w{first + rnd.randrange(min(each, geometry.lpas - first))}")
            apart = rnd.choice((2, 3, 3))
            words.append(f"w{hot + rnd.randrange(apart)}+{(each - apart) // apart}/{apart}")
            if rnd.random() < 0.3:
                words.append(rnd.choice(("f", "i", "r", f"t{rnd.randrange(geometry.lpas)}")))
    return " ".join(words)


def budgeted(rnd: random.Random, case: Case) -> Case:
    """The case with a DRAM budget that leaves the data cache a few pages or many, or that is less than the map's cache
    takes by default; without one if it is too small."""
    bench = Bench(case)
    tables = sum(packed(bench.ssd).values())
    pages = rnd.choice((1, 3, 9, bench.geometry.lpas))
    shrinks = -bench.ssd.mapping.least_share()
    bench.release(unused=True)
    if shrinks > 0 and rnd.random() < SHORT_OF_DEFAULTS:
        more = replace(case, dram=tables - rnd.randrange(shrinks))
    else:
        more = replace(case, dram=tables + pages * (bench.geometry.page_bytes + CACHE_SLOT))
    return more if fits(more) else case


def without_battery(ftl: str) -> dict[str, str]:
    """The option that turns off a scheme's battery-backed map: its recovery then scans, as others do."""
    return {option.name: "0" for option in scheme(ftl).options if option.name == "battery"}


def from_checkpoints(ftl: str) -> dict[str, str]:
    """As ``without_battery``, and turns off the fence: a scheme that needs no checkpoint then recovers from them."""
    return {**without_battery(ftl), **{option.name: "0" for option in scheme(ftl).options if option.name == "fence"}}


def fits(case: Case) -> bool:
    """Whether the chip is large enough for its FTL with these options and this budget."""
    try:
        Bench(case).release(unused=True)
    except (BindError, UsageError, GeometryError):
        return False
    return True


def large_for(ftl: str) -> tuple[str, ...]:
    """The chips of tier wide: those for all schemes, and those that this one asks for."""
    return tuple(dict.fromkeys((*LARGE, *scheme(ftl).chips)))


@lru_cache
def fitting(preset: str) -> tuple[str, ...]:
    """The schemes that can be bound to that chip."""
    found = []
    for ftl in SCHEMES:
        with suppress(FlashfsError):
            found += [ftl] * bool(presets_for(ftl, (preset,)))
    return tuple(found)


@lru_cache
def presets_for(ftl: str, among: tuple[str, ...] = TINY) -> tuple[str, ...]:
    """The presets that the FTL can be bound to; FlashfsError if there is none. An FTL that fits no chip of TINY has
    those of ROOMY instead; one that fits a single one has both, if all of TINY is asked for."""
    found, why = fitting_of(ftl, among)
    tiny = len(fitting_of(ftl, TINY)[0]) if set(among) & set(TINY) else len(TINY)
    if (tiny == 0 and not set(found) & set(TINY)) or (tiny == 1 and set(TINY) <= set(among)):
        found = (*fitting_of(ftl, ROOMY)[0], *found)
    if not found:
        raise FlashfsError(f"{ftl} runs on none of {', '.join(among)}: {why}")
    return found


@lru_cache
def fitting_of(ftl: str, among: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """The presets that it can be bound to, and why it does not fit the last of the others."""
    found, why = [], ""
    for preset in among:
        try:
            Bench(Case(ftl, "", preset)).release(unused=True)
        except BindError as error:
            why = str(error)  # the error itself would keep its chips alive in the cache
        else:
            found.append(preset)
    return tuple(found), why
