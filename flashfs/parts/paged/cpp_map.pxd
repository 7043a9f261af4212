# Assignment to a C++ map. libcpp's does not catch bad_alloc, which ends the process; this one raises MemoryError.
cdef extern from * nogil:
    """
    template <class Map, class Key, class Value> static void flashfs_assign(Map& map, Key key, Value value) {
        map[key] = value;
    }
    """
    void assign "flashfs_assign"[Map, Key, Value](Map& map, Key key, Value value) except +
