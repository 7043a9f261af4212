"""Figures of papers, made again: what the paper says, what comes out here, and whether the one bears the other out.

A figure is a TOML file (``figure``): what is replayed, what is made of a result (``expression``), and what the paper
says of it, marked by where that is from (``verdict``). ``make`` replays it as a sweep, so that what was replayed before
is only read, and writes table, picture and results.
"""
