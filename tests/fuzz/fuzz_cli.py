"""Senseless command lines, run in this process: exit code 0, 1 or 2, at most one line on stderr, and
never a traceback."""

from __future__ import annotations

import contextlib
import io
import os
from collections import Counter
from pathlib import Path
from random import Random

from fuzz_bases import Base
from fuzz_images import Finding, damaged

from flashfs import cli

EXIT_CODES = (0, 1, 2)
WORDS = [
    "", " ", "-", "--", "-h", "--help", "--json", "--force", "--nonesuch", "x", "0", "1", "-1", "7", "4096", "99999999",
    "18446744073709551616", "9" * 400, "1e9", "nan", "inf", "0x10", "1G", "1.5k", "3q", "\udcff\udcfe", "ü\u202e",
    "a\nb", "\x1b[31mred", "[bold]", "%s%n", "../../x", "a" * 300, "k=v", "=", "shift=9", "buffer=99999999", "\t",
]  # fmt: skip
SIZES = [
    "0",
    "-1",
    "",
    "1",
    "511",
    "512",
    "4k",
    "4097",
    "64k",
    "1M",
    "16M",
    "1.5M",
    "1G",
    "8T",
    "9999999999T",
    "1e9",
    "k",
    "١",
]
NUMBERS = [
    "0",
    "-1",
    "1",
    "2",
    "3",
    "4",
    "7",
    "8",
    "64",
    "256",
    "4096",
    "65537",
    "2147483648",
    "9" * 30,
    "x",
    "",
    "1.5",
]
VIEWS = ["header", "blocks", "page", "lpa", "log", "scheme", "recovery", "map", "hids", "vbt", "rmm",
         "references", "segments", "sharers", "nonesuch", ""]  # fmt: skip
OPTIONS = [
    "shift=8",
    "shift=-1",
    "hash=md5",
    "hash=x",
    "virtual_blocks=0",
    "virtual_blocks=16777214",
    "buffer=0",
    "stripe=4",
]
OPTIONS += ["segment=64", "segment=65", "nvram=0", "nvram=2048", "nvram=1099511627776", "atomic=command", "atomic=x"]
OPTIONS += ["watermark=0", "references=15", "references=16", "dedup=on", "verify=off", "lookups=alone"]
OPTIONS += [f"rival={rival}" for rival in ("remap", "none", "flog", "nlog", "opt", "x")]
OPTIONS += [
    "buffer=-1",
    "buffer=1048576",
    "gc_reserve=1048576",
    "wear_spread=1",
    "checkpoint_every=1099511627776",
    "=",
    "x",
]
LINES = [
    "",
    "cut=1:before",
    "cut=x",
    "ftl=nonesuch",
    "preset=tiny-8 program=w0",
    "program='w999'",
    "program='w0 f t0 r'",
]
LINES += [
    "ftl=slimftl preset=tiny-16 plp cut=3:prefix program='w0+9 f i r'",
    "fail=1,2 program=w1",
    "fail=, program=w1",
]
LINES += [
    "ftl=remapssd preset=tiny-16 program='w0+9 p20-0+4 m30-2+3 f r'",
    "ftl=remapssd preset=tiny-24d opt.rival=flog opt.nvram=2048 cut=20:prefix program='w0+80 p0-6+14 f r'",
    "ftl=remapssd preset=tiny-8 opt.nvram=64 opt.segment=65 program='p0-99+4'",
]
LINES += [
    "opt.buffer=99 program=w0",
    "opt.x=1 program=w0",
    "cut=99999999999999999999:after program=w0",
    "'",
    "program=q",
]
LINES += [
    "cut=1:sideways program=w0",
    "preset=nonesuch",
    "ftl=pagemap ftl=slimftl preset=tiny-16 program=w1",
    "=",
    "program=w-1",
]


class CommandLines:
    """A folder of things that are no images, and some that are; one command line after another."""

    def __init__(self, folder: Path, bases: list[Base]) -> None:
        self.folder = folder
        self.bases = [base for base in bases if len(base.raw) < 300_000]
        self.outcomes: Counter[str] = Counter()
        folder.mkdir(exist_ok=True)
        (folder / "full").mkdir(exist_ok=True)
        (folder / "full" / "file").write_text("x")
        (folder / "text").write_text("no image\n")
        (folder / "empty").write_bytes(b"")
        (folder / "secret").write_bytes(self.bases[0].raw)
        (folder / "secret").chmod(0)
        self.fifo = folder / "fifo"
        if not self.fifo.exists():
            os.mkfifo(self.fifo)
        (folder / "loop").unlink(missing_ok=True)
        (folder / "loop").symlink_to("loop")

    def path(self, rnd: Random) -> str:
        """A file, mostly not a sound image."""
        kind = rnd.random()
        if kind < 0.25:
            base = rnd.choice(self.bases)
            (self.folder / "image").write_bytes(base.raw)
            return "image"
        if kind < 0.5:
            raw, _, _ = damaged(rnd.choice(self.bases), rnd)
            (self.folder / "image").write_bytes(raw)
            return "image"
        names = ["none", "none/none", "full", "full/file/x", "text", "empty", "secret", "fifo", "loop", "/dev/null"]
        names += [
            "/dev/zero",
            "/dev/full",
            "/proc/self/mem",
            "/proc/self/maps",
            "/sys",
            ".",
            "..",
            "",
            "image\udcff",
            "a\nb",
        ]
        return rnd.choice(names)

    def place(self, rnd: Random) -> str:
        """A mountpoint on which nothing can ever be mounted."""
        return rnd.choice(
            ("full", "text", "none/none", "", "loop", "fifo", "/proc/self/mem", "full\udcff/x", "x" * 5000)
        )

    def arguments(self, rnd: Random) -> list[str]:
        """One command line."""
        command = rnd.choice(
            ("create", "create", "dump", "dump", "dump", "fsck", "fsck", "mount", "umount", "up", "down", "ftls",
             "presets", "crash", "replay", "top", "remap", "", "nonesuch")
        )  # fmt: skip
        out = {
            "create": self.create, "dump": self.dump, "fsck": self.fsck, "mount": self.mount, "up": self.up,
            "crash": self.crash, "replay": self.replay, "top": self.top,
            "remap": self.remap,
        }.get(command, self.other)(rnd, command)  # fmt: skip
        for _ in range(rnd.choice((0, 0, 0, 1, 2))):
            out.insert(rnd.randrange(len(out) + 1), rnd.choice(WORDS))
        if out[:1] in (["mount"], ["up"], ["crash"]):
            out = [word for word in out if word != "--foreground"]
        return out

    def create(self, rnd: Random, _: str) -> list[str]:
        out = ["create", rnd.choice(("new", self.path(rnd)))]
        for name in ("--size", "--page-size"):
            out += [name, rnd.choice(SIZES)] * (rnd.random() < 0.4)
        for name in ("--pages-per-block", "--channels", "--dies", "--oob", "--op"):
            out += [name, rnd.choice((*NUMBERS, "nan", "inf", "1e-300", "0.1"))] * (rnd.random() < 0.2)
        out += ["--preset", rnd.choice(("tiny-8", "tiny-16", "nonesuch", ""))] * (rnd.random() < 0.3)
        out += ["--backend", rnd.choice(("file", "meta", "tape", ""))] * (rnd.random() < 0.3)
        return out + ["--force"] * (rnd.random() < 0.6) + ["--json"] * (rnd.random() < 0.3)

    def dump(self, rnd: Random, _: str) -> list[str]:
        out = ["dump", self.path(rnd), rnd.choice(VIEWS)]
        out += [rnd.choice(NUMBERS)] * (rnd.random() < 0.5)
        if rnd.random() < 0.3:
            out += ["--html", rnd.choice(("page.html", "none/page", "/dev/full", self.path(rnd)))]
            del out[2 : rnd.choice((2, 3))]
            out += ["--force"] * (rnd.random() < 0.5)
        return out + ["--json"] * (rnd.random() < 0.5)

    def top(self, rnd: Random, _: str) -> list[str]:
        out = ["top", rnd.choice((self.place(rnd), self.path(rnd)))]
        out += ["--interval", rnd.choice((*NUMBERS, "nan", "inf", "0.1"))] * (rnd.random() < 0.4)
        return out + ["--once"] * (rnd.random() < 0.5) + ["--json"] * (rnd.random() < 0.5)

    def remap(self, rnd: Random, _: str) -> list[str]:
        out = ["remap", self.path(rnd), *(rnd.choice((*SIZES, *NUMBERS)) for _ in range(rnd.choice((2, 3, 3, 3, 4))))]
        return out + ["--move"] * (rnd.random() < 0.3) + ["--json"] * (rnd.random() < 0.5)

    def fsck(self, rnd: Random, _: str) -> list[str]:
        return ["fsck", self.path(rnd)] + ["--data"] * (rnd.random() < 0.5) + ["--json"] * (rnd.random() < 0.5)

    def mount(self, rnd: Random, command: str) -> list[str]:
        out = [command, self.path(rnd), self.place(rnd)]
        out += ["--ftl", rnd.choice(("pagemap", "slimftl", "remapssd", "", "x"))] * (rnd.random() < 0.3)
        out += ["--opt", rnd.choice(OPTIONS)] * (rnd.random() < 0.5)
        out += ["--dram", rnd.choice(SIZES)] * (rnd.random() < 0.3)
        out += ["--sync", rnd.choice(("flush", "none", "x"))] * (rnd.random() < 0.3)
        out += ["--server", rnd.choice(("auto", "x"))] * (rnd.random() < 0.2)
        out += ["--log", rnd.choice(("none/log", "full", "/dev/full", ""))] * (rnd.random() < 0.2)
        return out + ["--plp"] * (rnd.random() < 0.3)

    def up(self, rnd: Random, _: str) -> list[str]:
        """Never a file that could be brought up."""
        out = self.mount(rnd, "up")
        out[1] = rnd.choice(("none", "text", "empty", "full", "/dev/null", "/dev/zero", ""))
        return [*out, "--fs", rnd.choice(("ext4", "ntfs", ""))]

    def crash(self, rnd: Random, _: str) -> list[str]:
        """Nothing that runs for long."""
        wrong = ["--cuts", rnd.choice(("0", "-1", "x"))], ["--tier", rnd.choice(("x", "", "sweep,x"))], ["--ftl", "x"]
        return ["crash", *rnd.choice((*wrong, ["--length", "99"], ["--jobs", "0"], ["--seed", "x"]))]

    def replay(self, rnd: Random, _: str) -> list[str]:
        return (
            ["crash", "replay", rnd.choice(LINES)] + ["-v"] * (rnd.random() < 0.2) + ["--json"] * (rnd.random() < 0.2)
        )

    def other(self, rnd: Random, command: str) -> list[str]:
        if command in ("umount", "down"):
            return [command, self.place(rnd)]
        return [command] + [rnd.choice((*WORDS, "slimftl", "pagemap"))] * (rnd.random() < 0.4)

    def run(self, rnd: Random) -> None:
        """One command line, judged."""
        arguments = self.arguments(rnd)
        # as Python makes them: a name that is no UTF-8 arrives on stdout as it came
        out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        err = io.StringIO()
        before = os.umask(rnd.choice((0, 0o022, 0o777)))
        try:
            with contextlib.chdir(self.folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = cli.run(arguments)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            raise Finding(f"{arguments!r}: {type(error).__name__}: {error}") from error
        finally:
            os.umask(before)
            (self.folder / "new").unlink(missing_ok=True)
            if "image" in arguments:
                (self.folder / "image").unlink(missing_ok=True)
        said = err.getvalue()
        if code not in EXIT_CODES:
            raise Finding(f"{arguments!r}: exit code {code}")
        lines = said.count("\n")
        if "Traceback" in said or "internal error" in said or lines > 1:
            raise Finding(f"{arguments!r}: said {said[:300]!r}")
        if any(not one.isprintable() for one in said[:-1]):
            raise Finding(f"{arguments!r}: said what a terminal would obey: {said[:300]!r}")
        self.outcomes[f"{arguments[0] if arguments and arguments[0] in cli_names() else '?'}: {code}"] += 1


def cli_names() -> list[str]:
    return ["create", "clone", "mount", "umount", "up", "down", "status", "top", "dump", "fsck", "ftls", "presets",
            "crash", "remap"]
