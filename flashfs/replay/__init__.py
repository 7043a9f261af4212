"""Replays: traces and workloads on every FTL, in virtual time; results, pictures and sweeps of them.

The package is also a function: ``flashfs.replay("zipf:ops=1M", ftl=["pagemap", "slimftl"])`` returns a data frame (see
``flashfs.replay.api``).
"""

from flashfs.callable_package import make_callable

make_callable(__name__)
