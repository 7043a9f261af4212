"""The commands as functions, with their flags as keywords: ``flashfs.NAME`` for each name below. ``flashfs`` imports
this module when one of them is first used."""

from flashfs.api.chips import create, open
from flashfs.api.images import clone, dump, fsck
from flashfs.api.mounting import Mount, mount
from flashfs.api.tables import compare, plot, read_trace

__all__ = ["Mount", "clone", "compare", "create", "dump", "fsck", "mount", "open", "plot", "read_trace"]
