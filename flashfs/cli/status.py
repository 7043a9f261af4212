"""``flashfs status``: what is up."""

from __future__ import annotations

from flashfs.cli import options, show


def command(as_json: options.Json = False) -> None:
    """List every flashfs mount: image, FTL, process, where `disk` is, and the file system on a loop device over it."""
    from flashfs.fuse.status import status

    found = [one.as_dict() for one in status()]
    if as_json:
        show.result({"mounts": found}, as_json=True)
    elif found:
        # a process number is a name, and has no thousands
        show.rows([{**one, "pid": str(one["pid"] or "-")} for one in found])
    else:
        show.line("nothing is up")
