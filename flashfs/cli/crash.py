"""``flashfs crash``: cut the power, thousands of times, and judge what is left."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from flashfs.cli import crash_kill, crash_run, crash_workload, examples, help, options, show
from flashfs.cli.crash_common import bar
from flashfs.errors import UsageError

HELP = """Cut the power thousands of times, and judge what is left.

`flashfs crash --ftl slimftl` is short for `flashfs crash run --ftl slimftl`. What loses something prints the line that
does it again.
"""


class Crash(help.Group):
    """Options without a command are those of `run`; or of the command that had them when there was but one."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        return super().parse_args(ctx, whole(args))


app = typer.Typer(help=HELP, cls=Crash, epilog=examples.of("crash"))
app.command("run", cls=help.Command, epilog=examples.of("crash run"))(crash_run.command)
app.command("kill", cls=help.Command, epilog=examples.of("crash kill"))(crash_kill.command)
app.command("workload", cls=help.Command, epilog=examples.of("crash workload"))(crash_workload.command)


@app.callback()
def group() -> None:
    pass


def whole(args: list[str]) -> list[str]:
    """A command line with its command."""
    if args and (not args[0].startswith("-") or args[0] in ("-h", "--help")):
        return args
    names = {word.partition("=")[0] for word in args}
    if "--kill" in names:
        return ["kill", *(word for word in args if word != "--kill")]
    if names & {"--workload", "--recording"}:
        return ["workload", *args]
    return ["run", *(part for word in args for part in (("--tier", "every") if word == "--every" else (word,)))]


@app.command("replay", cls=help.Command, epilog=examples.of("crash replay"))
def replay(
    line: Annotated[str, typer.Argument(metavar="LINE", help="The line that a failure printed, quoted.")],
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Show each step and mount, and the operations so far.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Run the one case that a failure printed.

    Prints how it ended. Exit code 1 if it failed; 2 if it did not, and a cut or a failure of the line never fell: then
    it shows nothing.
    """
    from flashfs.crash import Case, run_case
    from flashfs.crash.run import never_fell

    def tell(what: str, operations: int) -> None:
        show.line(f"{operations:>8}  {what}")

    case = Case.parse(line)
    outcome = run_case(case, tell) if verbose and not as_json else run_case(case)
    failure = outcome.failure
    missed = [] if failure else never_fell(case, outcome)
    if as_json:
        found = {"cuts": outcome.cuts_hit, "operations": outcome.operations, "failure": failure and failure.why}
        show.result({**found, "never_fell": missed}, as_json=True)
    else:
        show.line(failure.why if failure else f"survived: {outcome.cuts_hit} cuts, operations {outcome.operations}")
    if missed:
        show.warn(f"{', '.join(missed)}: never fell, so this run shows nothing of it: the line is of another version")
    if failure or missed:
        raise typer.Exit(1 if failure else 2)


@app.command("shrink", cls=help.Command, epilog=examples.of("crash shrink"))
def shrink(
    line: Annotated[str, typer.Argument(metavar="LINE", help="The line that a failure printed, quoted.")],
    seconds: Annotated[float, typer.Option(min=1, metavar="S", help="Stop after S seconds.")] = 60.0,
    as_json: options.Json = False,
) -> None:
    """Make a case that fails smaller.

    Words are taken away for as long as it fails in the same way; then its line is printed.
    """
    from flashfs.crash import Case, Failure
    from flashfs.crash.shrink import shrink, why_of

    case = Case.parse(line)
    if why_of(case) is None:
        raise UsageError("crash shrink: this case does not fail; `flashfs crash replay` says how it ends")
    before = len(case.program.split())
    with bar("words", before, "words") as move:
        smaller = shrink(case, seconds=seconds, tell=lambda one: move(before - len(one.program.split())))
    if as_json:
        found = {"line": smaller.line(), "why": why_of(smaller), "words": len(smaller.program.split())}
        show.result({**found, "words_before": before}, as_json=True)
    else:
        show.line(f"{before} words, now {len(smaller.program.split())}: {why_of(smaller)}")
        show.line(Failure(smaller, "").replay)
