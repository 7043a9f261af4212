"""All commands together, and how a command line is run."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NoReturn

import typer

from flashfs.cli import (
    check,
    clone,
    crash,
    create,
    cut,
    down,
    dump,
    fault,
    fsck,
    ftls,
    mount,
    mount_helper,
    nbd,
    new_ftl,
    plot,
    presets,
    recovery_model,
    remap,
    replay,
    reproduce,
    resize,
    show,
    smart,
    status,
    sweep,
    top,
    trace,
    umount,
    up,
    upgrade,
)
from flashfs.errors import UsageError, one_line
from nandimg.errors import InUseError

INTERRUPTED = 130  #: the exit code

# typer brings its own click in some versions and needs the package in others: this is the class in both.
BadUsage: Any = typer.BadParameter.__mro__[1]

app = typer.Typer(
    name="flashfs",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def say_version(asked: bool) -> None:
    """What --version does."""
    if asked:
        from flashfs import __version__

        show.line(f"flashfs {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=say_version, is_eager=True, help="Print the version, and leave.")
    ] = False,
) -> None:
    """An SSD that you can mount: a NAND chip in a sparse file, and a flash translation layer chosen by name."""


# A command's file has one function called `command`; a line here adds it.
for module in (create, clone, mount, umount, nbd, up, down, status, cut, fault, top, smart, dump, fsck, remap, resize,
               upgrade, replay, sweep, plot, reproduce, recovery_model, ftls, presets, check, new_ftl):
    app.command(module.__name__.rpartition(".")[2].replace("_", "-"))(module.command)
app.add_typer(crash.app, name="crash")  # it has a command of its own: replay
app.add_typer(trace.app, name="trace")


def names() -> set[str]:
    """Of the commands, and of those that have commands of their own."""
    named = [one.name for one in app.registered_commands] + [one.name for one in app.registered_groups]
    return {name for name in named if name is not None}


def main() -> None:
    """The console script, once everything is imported that is here."""
    if mount_helper.is_asked(sys.argv[1:], names()):
        mount_main()
    try:
        from flashfs.ftl import search_here

        search_here()
    except KeyboardInterrupt:
        sys.exit(fail("interrupted", INTERRUPTED))
    except Exception as error:  # a scheme of the checkout that is not compiled, or wrong
        sys.exit(fail(*one_line(error)))
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
        result: Any = app(args=list(arguments), prog_name="flashfs", standalone_mode=False)
        sys.stdout.flush()
    except BadUsage as error:
        message = negative(error, arguments) or error.format_message()
        if not message or type(error).__name__ == "NoArgsIsHelpError":
            return 2  # the help was printed
        command = f" {error.ctx.info_name}" if error.ctx and error.ctx.parent else ""
        return fail(f"{' '.join(message.split()).rstrip('.')} (see flashfs{command} --help)", 2)
    except (typer.Abort, KeyboardInterrupt):
        return fail("interrupted", INTERRUPTED)
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except InUseError as error:
        from flashfs.nbd import serving  # here: it looks at what all processes do

        return fail(serving.in_use(error.path, error.pid), 1)
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


def fail(line: str, exit_code: int) -> int:
    """Say why, in one line."""
    show.warn(line)
    return exit_code
