"""What ``flashfs.NAME`` is, for names that are not somebody else's: the commands as functions, with their flags as
keywords. ``flashfs`` imports it when one of them is asked for."""

from flashfs.api.chips import create, open
from flashfs.api.images import clone, dump, fsck
from flashfs.api.mounting import Mount, mount
from flashfs.api.tables import compare, plot, read_trace

__all__ = ["Mount", "clone", "compare", "create", "dump", "fsck", "mount", "open", "plot", "read_trace"]
