# The Python interface of learning; see regression_py.pyx.
from libc.stdint cimport uint32_t

from flashfs.ftl.leaftl.regression cimport Rules

cdef Rules make_rules(gamma, group, pages_per_block, objective)
cdef int check_run(const uint32_t[::1] lpas, const uint32_t[::1] ppas) except -1
