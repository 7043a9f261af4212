"""Converts arrays of PPAs and VPPNs. For single ones use Geometry's ``vppn`` and ``ppa``, in Cython _vppn.pxd."""
from libc.stdint cimport uint32_t


def vppns(const uint32_t[::1] ppas not None, uint32_t dies, uint32_t pages_per_block, uint32_t[::1] out not None):
    """Write the VPPN of each PPA to ``out``; ValueError unless it has the same length."""
    cdef Py_ssize_t i
    if ppas.shape[0] != out.shape[0]:
        raise ValueError(f"{ppas.shape[0]} PPAs, and room for {out.shape[0]} VPPNs")
    for i in range(ppas.shape[0]):
        out[i] = vppn_of(ppas[i], dies, pages_per_block)


def ppas(const uint32_t[::1] vppns not None, uint32_t dies, uint32_t pages_per_block, uint32_t[::1] out not None):
    """The inverse of ``vppns``."""
    cdef Py_ssize_t i
    if vppns.shape[0] != out.shape[0]:
        raise ValueError(f"{vppns.shape[0]} VPPNs, and room for {out.shape[0]} PPAs")
    for i in range(vppns.shape[0]):
        out[i] = ppa_of(vppns[i], dies, pages_per_block)
