"""Man pages of the command line, made from its help: man/flashfs.1, and one for each command.

    python tools/manpages.py              # bring every page up to date, and remove those of commands that are gone
    python tools/manpages.py --check      # say which are not up to date; exit code 1 if there is one

They are committed, because the build of a wheel from a source archive cannot run the command.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))


from flashfs import __version__  # noqa: E402
from flashfs.cli.commands import program  # noqa: E402
from flashfs.cli.help import said, short, shown  # noqa: E402

MAN = ROOT / "man"
HELP = [("\\fB\\-h\\fR, \\fB\\-\\-help\\fR", "Show the help and exit.")]
EXITS = "0 done, 1 failed, 2 bad usage, 130 interrupted. Errors are one line on stderr."


def pages() -> dict[str, str]:
    """{file name: its text}."""
    root: Any = program()
    found = dict(walk(root))
    return {f"{'-'.join(path)}.1": page(path, command, found) for path, command in found.items()}


def walk(command: Any, path: tuple[str, ...] = ("flashfs",)) -> Iterator[tuple[tuple[str, ...], Any]]:
    """A command and those below it: (words that call it, click's object)."""
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        if not below.hidden:
            yield from walk(below, (*path, name))


def page(path: tuple[str, ...], command: Any, all_commands: dict[tuple[str, ...], Any]) -> str:
    """One page, in man(7)'s macros."""
    arguments = [one for one in command.params if one.param_type_name == "argument" and not one.hidden]
    options = [one for one in command.params if one.param_type_name == "option" and not one.hidden]
    below = {other: one for other, one in all_commands.items() if other[:-1] == path}
    title = "-".join(path)
    out = [
        '.\\" Made by tools/manpages.py of the command line\'s help.',
        f'.TH {title.upper()} 1 "" "flashfs {__version__}"',
        f".SH NAME\n{escaped(title)} \\- {text(short(command))}",
        f".SH SYNOPSIS\n.B {escaped(' '.join(path))}\n{synopsis(arguments, below, command)}",
        f".SH DESCRIPTION\n{text(command.help or '')}",
    ]
    if arguments:
        out.append(".SH ARGUMENTS\n" + rows((f"\\fI{escaped(shown(one))}\\fR", said(one)) for one in arguments))
    out.append(".SH OPTIONS\n" + rows([*((spelled(one), said(one)) for one in options), *HELP]))
    if below:
        out.append(".SH COMMANDS\n" + rows((f"\\fB{escaped(o[-1])}\\fR", short(one)) for o, one in below.items()))
    out.append(f".SH EXIT STATUS\n{text(EXITS)}")
    out += ends(command.ending())
    others = [*below, *([path[:-1]] if len(path) > 1 else [])]
    if others:
        out.append(".SH SEE ALSO\n" + ",\n".join(f".BR {escaped('-'.join(other))} (1)" for other in others))
    return "\n".join(out) + "\n"


def synopsis(arguments: list[Any], below: dict[tuple[str, ...], Any], command: Any) -> str:
    words = ["[\\fIOPTION\\fR]..."]
    for one in arguments:
        word = f"\\fI{escaped(shown(one))}\\fR"
        words.append(word if one.required else f"[{word}]")
    if below:
        words.append("[\\fICOMMAND\\fR]" if command.invoke_without_command else "\\fICOMMAND\\fR [\\fIARG\\fR]...")
    return " ".join(words)


def spelled(option: Any) -> str:
    """-v, --verbose; --size SIZE."""
    names = ", ".join(f"\\fB{escaped(name)}\\fR" for name in [*option.opts, *option.secondary_opts])
    return names if option.is_flag else f"{names} \\fI{escaped(shown(option))}\\fR"


def ends(epilog: str) -> Iterator[str]:
    """The views and the examples at the end of a command's help, unchanged."""
    for part in epilog.split("\n\n") if epilog else ():
        title, *lines = part.split("\n")
        shown_so = (re.sub(r"^([.'])", r"\\&\1", escaped(line.removeprefix("  "))) for line in lines)
        yield "\n".join([f".SH {title.removesuffix(':').upper()}", ".nf", *shown_so, ".fi"])


def rows(pairs: Any) -> str:
    return "\n".join(f".TP\n{name}\n{text(help_text)}" for name, help_text in pairs)


def text(words: str) -> str:
    """Paragraphs, none of whose lines is taken for a macro."""
    paragraphs = [escaped(" ".join(part.split())) for part in re.split(r"\n\s*\n", words.strip())]
    return "\n.PP\n".join(re.sub(r"^([.'])", r"\\&\1", part) for part in paragraphs)


def escaped(words: str) -> str:
    return words.replace("\\", "\\e").replace("-", "\\-")


def main() -> int:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--check", action="store_true", help="write nothing; exit code 1 if one is stale")
    check = arguments.parse_args().check
    wanted = pages()
    there = {path.name: path.read_text() for path in MAN.glob("*.1")}
    stale = sorted(name for name in wanted.keys() | there.keys() if wanted.get(name) != there.get(name))
    for name in stale:
        print(f"man/{name}: {'is not up to date: make man' if check else 'written' if name in wanted else 'removed'}")
        if check:
            continue
        if name in wanted:
            MAN.mkdir(exist_ok=True)
            (MAN / name).write_text(wanted[name])
        else:
            (MAN / name).unlink()
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
