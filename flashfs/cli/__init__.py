"""The command line: one command in one file, no logic of its own. Whatever goes wrong is one line on stderr.

Exit codes: 0 done, 1 failed, 2 bad usage, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import typer

from flashfs.cli import (
    check,
    clone,
    crash,
    create,
    down,
    dump,
    fsck,
    ftls,
    mount,
    new_ftl,
    plot,
    presets,
    recovery_model,
    remap,
    replay,
    reproduce,
    show,
    status,
    sweep,
    top,
    trace,
    umount,
    up,
    upgrade,
)
from flashfs.errors import one_line

INTERRUPTED = 130  #: the exit code

# typer brings its own click in some versions and needs the package in others: this is the class in both.
BadUsage: Any = typer.BadParameter.__mro__[1]

app = typer.Typer(
    name="flashfs",
    help="An SSD that you can mount: a NAND chip in a sparse file, and a flash translation layer chosen by name.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# A command's file has one function called `command`; a line here adds it.
for module in (create, clone, mount, umount, up, down, status, top, dump, fsck, remap, upgrade, replay, sweep, plot,
               reproduce, recovery_model, ftls, presets, check, new_ftl):
    app.command(module.__name__.rpartition(".")[2].replace("_", "-"))(module.command)
app.add_typer(crash.app, name="crash")  # it has a command of its own: replay
app.add_typer(trace.app, name="trace")


def main() -> None:
    """What the console script calls."""
    try:
        from flashfs.ftl import search_here
    except Exception as error:  # a scheme of the checkout that is not compiled, or wrong
        sys.exit(fail(*one_line(error)))
    search_here()
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; errors are printed, never raised."""
    try:
        result: Any = app(args=list(arguments), prog_name="flashfs", standalone_mode=False)
        sys.stdout.flush()
    except BadUsage as error:
        message = error.format_message()
        if not message or type(error).__name__ == "NoArgsIsHelpError":
            return 2  # the help was printed
        command = f" {error.ctx.info_name}" if error.ctx and error.ctx.parent else ""
        return fail(f"{' '.join(message.split()).rstrip('.')} (see flashfs{command} --help)", 2)
    except (typer.Abort, KeyboardInterrupt):
        return fail("interrupted", INTERRUPTED)
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        return fail(*one_line(error))
    if result == INTERRUPTED:  # typer may have caught it, and says nothing
        return fail("interrupted", INTERRUPTED)
    return result if isinstance(result, int) else 0


def fail(line: str, exit_code: int) -> int:
    """Say why, in one line."""
    show.warn(line)
    return exit_code
