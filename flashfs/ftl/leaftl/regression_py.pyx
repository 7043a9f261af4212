# cold
"""The Python interface of learning (regression.pyx): runs as arrays, rules by name, and functions of a piece's
numbers."""
from libc.stdint cimport uint8_t, uint32_t

from flashfs.ftl.leaftl.regression cimport (
    FEWEST, GAMMA_MOST, GROUP_MOST, SMALLEST, Piece, Rules, half_floor, half_nearest, half_value, learn, predict,
    stride_of,
)

import numpy as np

PIECE = np.dtype([("first", "<u4"), ("n", "<u4"), ("start", "<u4"), ("length", "<u4"), ("intercept", "<u4"),
                  ("slope", "<u2"), ("unused", "<u2")])  #: an element of ``fit``'s result; ``unused`` is padding
OBJECTIVES = {"fewest": FEWEST, "smallest": SMALLEST}


def fit(lpas, ppas, gamma=0, *, group=256, pages_per_block=0, objective="fewest"):
    """Learn a run: returns an array of ``PIECE`` for the points (LPA, PPA), which are sorted by LPA, each LPA once.

    gamma in pages, 0 to 16; ``group`` in LPAs, a power of two up to 65,536. ValueError says what to use.
    """
    cdef Rules rules = make_rules(gamma, group, pages_per_block, objective)
    cdef const uint32_t[::1] xs = np.ascontiguousarray(lpas, np.uint32)
    cdef const uint32_t[::1] ys = np.ascontiguousarray(ppas, np.uint32)
    cdef uint32_t n, count
    check_run(xs, ys)
    n = xs.shape[0]
    if n == 0:
        return np.empty(0, PIECE)
    out = np.empty(n, PIECE)
    cdef uint8_t[::1] raw = out.view(np.uint8)
    with nogil:
        count = learn(&xs[0], &ys[0], n, &rules, <Piece*> &raw[0])
    out["unused"][:count] = 0
    return out[:count].copy()


cdef Rules make_rules(gamma, group, pages_per_block, objective):
    """Check the arguments of ``fit`` and make Rules of them."""
    cdef Rules rules
    if not 0 <= gamma <= GAMMA_MOST:
        raise ValueError(f"gamma {gamma}: use 0 to {GAMMA_MOST}")
    if not 1 <= group <= GROUP_MOST or group & (group - 1):
        raise ValueError(f"group {group}: use a power of two from 1 to {GROUP_MOST}")
    if not 0 <= pages_per_block < 1 << 32:
        raise ValueError(f"pages_per_block {pages_per_block}: use a whole number from 0 on")
    if objective not in OBJECTIVES:
        raise ValueError(f"objective {objective!r}: use {' or '.join(OBJECTIVES)}")
    rules.gamma = gamma
    rules.group = group
    rules.pages_per_block = pages_per_block
    rules.objective = OBJECTIVES[objective]
    return rules


cdef int check_run(const uint32_t[::1] lpas, const uint32_t[::1] ppas) except -1:
    cdef Py_ssize_t i
    cdef uint32_t none = 0xFFFFFFFF
    if lpas.shape[0] != ppas.shape[0]:
        raise ValueError(f"{lpas.shape[0]} LPAs and {ppas.shape[0]} PPAs: use as many of each")
    for i in range(lpas.shape[0]):
        if i and lpas[i] <= lpas[i - 1]:
            raise ValueError(f"LPA {lpas[i]} after {lpas[i - 1]}: use rising LPAs")
        if ppas[i] == none:
            raise ValueError(f"PPA {ppas[i]} of LPA {lpas[i]}: use a smaller one, this one stands for none")
    return 0


def predicted(slope, intercept, offset):
    """ceil(slope * offset) + intercept, modulo 2^32: ``slope`` as the 16 bits of a half, its sign ignored."""
    return predict(slope, intercept, offset)


def stride(slope):
    """LPAs from point to point of an accurate piece of that slope (16 bits of a half)."""
    return stride_of(slope)


def half_to_float(half):
    """The value of the 16 bits of a half."""
    return half_value(half)


def float_to_half(value):
    """The 16 bits of the half nearest to ``value``, ties to even."""
    return half_nearest(value)


def float_to_half_floor(value):
    """The 16 bits of the largest finite half not above ``value``; 0 for negative ones."""
    return half_floor(value)
