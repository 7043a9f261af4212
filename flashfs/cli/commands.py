"""All commands together, and how a command line is run."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer

from flashfs.cli import examples, help, mount_helper, show
from flashfs.errors import UsageError
from flashfs.ftl_search import search_here
from flashfs.fuse.users import one_line

INTERRUPTED = 130  #: the exit code

# typer brings its own click in some versions and needs the package in others: this is the class in both.
BadUsage: Any = typer.BadParameter.__mro__[1]

#: by what pydantic calls a number that it does not take: what to use
NUMBERS = {
    "int_parsing": "a whole number", "int_parsing_size": "a smaller number", "float_parsing": "a number",
    "greater_than_equal": "{ge:g} or more", "less_than_equal": "{le:g} or less",
}  # fmt: skip

#: A command's file has one function called `command`; a name here adds it. Its place in the help is in help.GROUPS.
COMMANDS = (
    "create", "clone", "mount", "umount", "nbd", "up", "down", "status", "cut", "fault", "top", "smart", "dump", "fsck",
    "remap", "resize", "upgrade", "replay", "compare", "sweep", "plot", "reproduce", "recovery-model", "ftls",
    "presets", "check", "new-ftl",
)  # fmt: skip
WITH_COMMANDS = ("crash", "trace")  #: these have commands of their own, and an `app`


def say_version(asked: bool) -> None:
    """What --version does."""
    if asked:
        from flashfs import __version__

        show.line(f"flashfs {__version__}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", callback=say_version, is_eager=True, help="Print the version, and exit.")
    ] = False,
) -> None:
    """An SSD that you can mount: a NAND chip in a sparse file, and a flash translation layer chosen by name."""


def names() -> set[str]:
    """Of the commands, and of those that have commands of their own."""
    return {*COMMANDS, *WITH_COMMANDS}


@cache
def program(asked: str | None = None) -> Any:
    """The whole program, or with the one command that is ``asked`` for: no file of another is imported then, nor gone
    through, which takes longer than most commands."""
    app = typer.Typer(
        name="flashfs",
        cls=help.Root,
        rich_markup_mode=None,
        epilog=examples.of("flashfs"),
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(root)
    for name in (*COMMANDS, *WITH_COMMANDS) if asked is None else (asked,):
        add(app, name)
    return typer.main.get_command(app)


def add(app: typer.Typer, name: str) -> None:
    """The command of that name."""
    module = import_module(f"flashfs.cli.{name.replace('-', '_')}")
    if name in WITH_COMMANDS:
        app.add_typer(module.app, name=name)
    else:
        app.command(name, cls=getattr(module, "Help", help.Command), epilog=examples.of(name))(module.command)


def main() -> None:
    """The console script, once everything is imported that is here."""
    if mount_helper.is_asked(sys.argv[1:], names()):
        mount_main()
    search_here()
    sys.exit(run(sys.argv[1:]))


def mount_main() -> NoReturn:
    """What mount(8) calls. It is root's more often than not: no FTL is looked for in the present folder."""
    sys.exit(helped(mount_helper.mount))


def umount_main() -> NoReturn:
    """What umount(8) calls."""
    sys.exit(helped(mount_helper.unmount))


def helped(helper: Callable[[Sequence[str], Callable[[Sequence[str]], int]], int]) -> int:
    """mount(8)'s exit code."""
    try:
        return helper(sys.argv[1:], run)
    except UsageError as error:
        return fail(*one_line(error)) and mount_helper.CODES[error.exit_code]


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; errors are printed, never raised."""
    try:
        asked = program(arguments[0] if arguments and arguments[0] in names() else None)
        result: Any = asked(args=list(arguments), prog_name="flashfs", standalone_mode=False)
        sys.stdout.flush()
    except BadUsage as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            return run([*arguments, "--help"]) or 2
        message = negative(error, arguments) or no_number(error) or error.format_message()
        said = " ".join(message.split()).rstrip(".")
        return fail(f"{said} (see {error.ctx.command_path if error.ctx else 'flashfs'} --help)", 2)
    except (typer.Abort, KeyboardInterrupt):
        return fail("interrupted", INTERRUPTED)
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        return fail(*one_line(error))
    if result == INTERRUPTED:  # typer may have caught it, and says nothing
        return fail("interrupted", INTERRUPTED)
    return result if isinstance(result, int) else 0


def negative(error: Any, arguments: Sequence[str]) -> str | None:
    """What is said of a number below 0 where one from 0 up was meant, which was taken for an option; None for what is
    no such slip."""
    typed = next((one for one in arguments if re.fullmatch(r"-\d+", one)), None)
    taken = typed is not None and getattr(error, "option_name", None) == typed[:2]
    return f"{typed}: it must be a number from 0 up" if taken else None


def no_number(error: Any) -> str | None:
    """What is said of an option's value that is no number, or not one of those that it takes: in the words in which
    other values are refused. None for another mistake."""
    found: list[dict[str, Any]] = getattr(error.__cause__, "errors", list)()  # typer has pydantic read numbers
    if not found or found[0]["type"] not in NUMBERS:
        return None
    parameter, limits = error.param, found[0].get("ctx", {})
    name = parameter.opts[0] if parameter.param_type_name == "option" else parameter.human_readable_name
    return f"{name} {found[0]['input']}: use {NUMBERS[found[0]['type']].format(**limits)}"


def fail(line: str, exit_code: int) -> int:
    """Say why, in one line."""
    show.warn(line)
    return exit_code
