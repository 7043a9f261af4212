"""The conformance suite: the rules that every FTL must keep, registered or your own, as a list of named checks.

``CHECKS`` is that list. Each check is a function of a Setting (which FTL, what scale, which seed) that returns counts
of what it did, or raises; ``run`` runs each in a process of its own, so that one that crashes, hangs or corrupts its
memory affects no other. docs/check.md says what each one promises.

The package is a function too: ``flashfs.check("dftl")`` is a data frame (see ``flashfs.check.api``).
"""

from flashfs.callable_package import make_callable
from flashfs.check.suite import CHECKS, SCALES, Broken, Check, Outcome, Setting, Skipped, run

__all__ = ["CHECKS", "SCALES", "Broken", "Check", "Outcome", "Setting", "Skipped", "run"]

make_callable(__name__)
