# Logarithmic Gecko; see gecko.pyx.
from libc.stdint cimport uint8_t, uint32_t

from flashfs.ftl.geckoftl.runs cimport GeckoRuns


cdef class Gecko(GeckoRuns):
    cdef list entries_in(self, const uint8_t* at, uint32_t n, uint32_t block, str where)
