"""PPAs and VPPNs in arrays; for single ones Geometry has ``vppn`` and ``ppa``, for compiled code _vppn.pxd."""
from libc.stdint cimport uint32_t


def vppns(const uint32_t[::1] ppas not None, uint32_t dies, uint32_t pages_per_block, uint32_t[::1] out not None):
    """The VPPN of each PPA into ``out``, of the same length."""
    cdef Py_ssize_t i
    if ppas.shape[0] != out.shape[0]:
        raise ValueError(f"{ppas.shape[0]} PPAs, and room for {out.shape[0]} VPPNs")
    for i in range(ppas.shape[0]):
        out[i] = vppn_of(ppas[i], dies, pages_per_block)


def ppas(const uint32_t[::1] vppns not None, uint32_t dies, uint32_t pages_per_block, uint32_t[::1] out not None):
    """The inverse."""
    cdef Py_ssize_t i
    if vppns.shape[0] != out.shape[0]:
        raise ValueError(f"{vppns.shape[0]} VPPNs, and room for {out.shape[0]} PPAs")
    for i in range(vppns.shape[0]):
        out[i] = ppa_of(vppns[i], dies, pages_per_block)
