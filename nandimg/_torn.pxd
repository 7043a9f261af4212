# Damage to a chip, for the faults in front of it.
from libc.stdint cimport uint8_t, uint32_t

from nandimg._chip cimport Chip

cdef int tear_program(Chip chip, uint32_t block, uint32_t page, const uint8_t* data, const uint8_t* oob,
                      int shape) except -1 nogil
cdef int fail_program(Chip chip, uint32_t block, uint32_t page, const uint8_t* data,
                      const uint8_t* oob) except -1 nogil
cdef int tear_erase(Chip chip, uint32_t block, int shape) except -1 nogil
cdef int spoil_page(Chip chip, uint32_t block, uint32_t page) except -1 nogil
cdef int skip_page(Chip chip, uint32_t block, uint32_t page) except -1 nogil
cdef int overwrite_page(Chip chip, uint32_t block, uint32_t page, const uint8_t* data,
                        const uint8_t* oob) except -1 nogil
