"""Power-cut campaigns and the judge that says whether anything was lost.

A *case* is one small program of host requests on one small chip, with a list of cuts; it fits on one line, and that
line replays it (``flashfs crash replay LINE``). Campaigns make cases by the thousand; the judge knows for each page
the set of versions that it may hold.

The package is a function too: ``flashfs.crash("dftl")`` is a data frame (see ``flashfs.crash.api``).
"""

from flashfs.callable_package import make_callable
from flashfs.crash.cases import Case, Failure
from flashfs.crash.oracle import Judge
from flashfs.crash.run import run_case

__all__ = ["Case", "Failure", "Judge", "run_case"]

make_callable(__name__)
