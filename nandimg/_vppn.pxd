# Virtual PPNs: page numbers in the order in which consecutive pages lie on different dies.
from libc.stdint cimport uint32_t


cdef inline uint32_t vppn_of(uint32_t ppa, uint32_t dies, uint32_t pages_per_block) noexcept nogil:
    """As Geometry.vppn."""
    cdef uint32_t block = ppa // pages_per_block
    cdef uint32_t page = ppa - block * pages_per_block, offset = block // dies
    return block - offset * dies + (page + offset * pages_per_block) * dies


cdef inline uint32_t ppa_of(uint32_t vppn, uint32_t dies, uint32_t pages_per_block) noexcept nogil:
    """As Geometry.ppa."""
    cdef uint32_t row = vppn // dies
    cdef uint32_t offset = row // pages_per_block
    return (offset * dies + vppn - row * dies) * pages_per_block + row - offset * pages_per_block
