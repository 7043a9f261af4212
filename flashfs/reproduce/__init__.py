"""Reproduces figures of papers: compares the paper's numbers with measured ones, and says whether they agree.

A figure is a TOML file (``figure``): what is replayed, how a value is computed from a result (``expression``), and what
the paper says, marked by where that is from (``verdict``). ``make`` replays it as a sweep, so earlier results are only
read, and writes table, picture and results.
"""
