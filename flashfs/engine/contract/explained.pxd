# What tools and reports ask of a map.
from flashfs.engine.contract.recovered cimport Recovered


cdef class Explained(Recovered):
    pass
