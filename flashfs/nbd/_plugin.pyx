# pkg-config, or left out: nbdkit
# distutils: depends = flashfs/fuse/foreign_thread.h
"""nbdkit's plugin: its callbacks, answered by the engine without the interpreter.

nbdkit calls from one thread per connection. One lock guards the device: the data of one connection are copied to or
from its socket while the device works for another. embed.h has what happens before there is an interpreter.
"""
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from flashfs.engine.device.ssd cimport Ssd
from flashfs.engine.device.byte_requests cimport read_bytes, seek_mapped, trim_bytes, write_bytes
from flashfs.fuse.raised cimport errno_of_raised

from flashfs.errors import FlashfsError
from flashfs.fuse.host_disk import HostDisk

cdef extern from "embed.h" nogil:
    struct nbdkit_extents:
        pass
    struct nbdkit_plugin:
        void* (*open)(int)
        int64_t (*get_size)(void*)
        int (*can_write)(void*)
        int (*can_flush)(void*)
        int (*is_rotational)(void*)
        int (*can_trim)(void*)
        int (*can_zero)(void*)
        int (*can_fast_zero)(void*)
        int (*can_fua)(void*)
        int (*can_multi_conn)(void*)
        int (*can_extents)(void*)
        int (*block_size)(void*, uint32_t*, uint32_t*, uint32_t*)
        int (*pread)(void*, void*, uint32_t, uint64_t, uint32_t)
        int (*pwrite)(void*, const void*, uint32_t, uint64_t, uint32_t)
        int (*flush)(void*, uint32_t)
        int (*trim)(void*, uint32_t, uint64_t, uint32_t)
        int (*zero)(void*, uint32_t, uint64_t, uint32_t)
        int (*extents)(void*, uint32_t, uint64_t, uint32_t, nbdkit_extents*)
    const uint32_t NBDKIT_FLAG_FUA
    const uint32_t NBDKIT_EXTENT_HOLE, NBDKIT_EXTENT_ZERO
    const int NBDKIT_FUA_NATIVE
    void nbdkit_set_error(int)
    void keep_state()
    int nbdkit_add_extent(nbdkit_extents*, uint64_t offset, uint64_t length, uint32_t kind)

cdef extern from *:
    """
    #include <errno.h>
    #include <pthread.h>
    #include <time.h>

    static void add_to(int64_t *count, int64_t n) { __atomic_add_fetch(count, n, __ATOMIC_RELAXED); }
    static int64_t now_ns(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
    }
    static void sleep_until(int64_t ns) {
        struct timespec end = {ns / 1000000000, ns % 1000000000};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR)
            ;
    }
    """
    void add_to(int64_t*, int64_t) nogil
    int64_t now_ns() nogil
    void sleep_until(int64_t) nogil        # a time of now_ns; returns at once if it is over
    ctypedef struct pthread_mutex_t:
        pass
    int pthread_mutex_init(pthread_mutex_t*, const void*) nogil
    int pthread_mutex_destroy(pthread_mutex_t*) nogil
    int pthread_mutex_lock(pthread_mutex_t*) nogil
    int pthread_mutex_unlock(pthread_mutex_t*) nogil

cdef enum:
    READ = 0
    WRITE = 1
    TRIM = 2
    FLUSH = 3
    EXTENTS = 4
    LEAST_BLOCK = 512         # that nbdkit may name as the best size of a request
    LARGEST_REQUEST = 32 << 20
cdef tuple OPERATIONS = ("read", "write", "trim", "flush", "extents")

# The engine's functions raise, and nbdkit's callbacks cannot. They are called through a type declared noexcept, and -1
# says that an exception is pending. A `try` would take the GIL for each request.
ctypedef int64_t (*Quiet)(Export, uint64_t, uint64_t, uint8_t*, int64_t) noexcept nogil


cdef int64_t do_read(Export self, uint64_t offset, uint64_t size, uint8_t* into, int64_t t_ns) except -1 nogil:
    return read_bytes(self.ssd, offset, size, into, t_ns)


cdef int64_t do_write(Export self, uint64_t offset, uint64_t size, uint8_t* data, int64_t t_ns) except -1 nogil:
    return write_bytes(self.ssd, offset, size, data, t_ns)


cdef int64_t do_trim(Export self, uint64_t offset, uint64_t size, uint8_t* _, int64_t t_ns) except -1 nogil:
    return trim_bytes(self.ssd, offset, size, t_ns)


cdef int64_t do_flush(Export self, uint64_t _, uint64_t __, uint8_t* ___, int64_t t_ns) except -1 nogil:
    self.ssd.flush(t_ns)
    if self.realtime:
        with gil:
            t_ns = max(t_ns, <int64_t> self.quiet_at())
    return t_ns


cdef int64_t to_mapped(Export self, uint64_t offset, uint64_t size, uint8_t* _, int64_t __) except -1 nogil:
    return <int64_t> seek_mapped(self.ssd, offset, size, True)


cdef int64_t to_unmapped(Export self, uint64_t offset, uint64_t size, uint8_t* _, int64_t __) except -1 nogil:
    return <int64_t> seek_mapped(self.ssd, offset, size, False)


@cython.final
cdef class Export:
    """The one device that all of nbdkit's clients see; ``publish`` sets it. As a context it locks the device;
    FlashfsError once it was closed."""
    cdef Ssd ssd
    cdef object fail_if_lost, quiet_at
    cdef readonly object host_disk
    cdef uint64_t size
    cdef uint32_t page_bytes
    cdef bint writable
    cdef bint realtime                     # each answer waits for its virtual end
    cdef bint closed                       # under the device's lock: it takes no more questions
    cdef int64_t zero_ns                   # when virtual time was 0
    cdef pthread_mutex_t device            # guards the device and the counts
    cdef uint64_t[5] requests
    cdef uint64_t[5] moved
    cdef int64_t under_way                 # counted before the lock is taken: changed by an atomic addition

    def __cinit__(self, device, *, bint realtime=False):
        self.ssd = device.ssd
        self.fail_if_lost = device.fail_if_lost
        self.host_disk = HostDisk(device.path)
        self.size = device.size
        self.page_bytes = device.page_bytes
        self.writable = not device.readonly
        self.quiet_at = device.quiet_at
        self.realtime = realtime
        self.zero_ns = now_ns() - <int64_t> device.quiet_at()
        pthread_mutex_init(&self.device, NULL)

    def __dealloc__(self):
        pthread_mutex_destroy(&self.device)

    def publish(self):
        """Call once. From then on the export lives as long as the process."""
        global THE_EXPORT, KEPT
        KEPT = self
        THE_EXPORT = <void*> self

    def __enter__(self):
        with nogil:                        # the holder of the lock may need the interpreter
            pthread_mutex_lock(&self.device)
        if self.closed:
            pthread_mutex_unlock(&self.device)
            raise FlashfsError("the image is being closed")
        return self

    def __exit__(self, kind, error, trace):
        pthread_mutex_unlock(&self.device)

    def close(self):
        """Call after the last client has left: the device takes no more questions."""
        with self:
            self.closed = True

    def traffic(self):
        """What the clients asked for so far, as a mount's stats.json has it under ``server``."""
        return {
            "requests": {name: self.requests[i] for i, name in enumerate(OPERATIONS)},
            "bytes": {name: self.moved[i] for i, name in enumerate(OPERATIONS[:3])},
            "in_flight": self.under_way,
        }

    cdef int fail(self, int operation, uint64_t offset) noexcept nogil:
        """Report the errno of the pending exception to nbdkit; returns -1."""
        cdef int code
        with gil:
            code = errno_of_raised(self.host_disk.errno_of, self.fail_if_lost, OPERATIONS[operation], offset)
        nbdkit_set_error(code)
        return -1

    cdef int64_t run(self, int operation, Quiet function, uint64_t offset, uint64_t size, uint8_t* data,
                     bint durable=False) noexcept nogil:
        """Do the request and count it. Returns what it returned, or -1. ``durable``: a flush follows, whose failure is
        the request's."""
        cdef int64_t result, flushed
        cdef int64_t t_ns = now_ns() - self.zero_ns if self.realtime else 0
        keep_state()
        add_to(&self.under_way, 1)
        pthread_mutex_lock(&self.device)
        self.requests[operation] += 1
        result = function(self, offset, size, data, t_ns)
        if result >= 0 and durable:
            self.requests[FLUSH] += 1
            flushed = (<Quiet> do_flush)(self, 0, 0, NULL, result)
            result = flushed if flushed < 0 else max(result, flushed)
        if result >= 0:
            self.moved[operation] += size
        pthread_mutex_unlock(&self.device)
        if self.realtime and result >= 0 and operation != EXTENTS:
            sleep_until(result + self.zero_ns)
        add_to(&self.under_way, -1)
        return self.fail(operation, offset) if result < 0 else result

    cdef int tell_extents(self, uint64_t offset, uint64_t size, nbdkit_extents* extents) noexcept nogil:
        """The first extent of the range, and no more: nbdkit sends each one by itself, and with several it aborts when
        a client leaves in between. The protocol allows that; the client asks for the rest."""
        cdef uint32_t kind = 0
        cdef int64_t n = 0
        while n == 0:                       # a trim or a write may come between the two
            kind = NBDKIT_EXTENT_HOLE | NBDKIT_EXTENT_ZERO
            n = self.run(EXTENTS, <Quiet> to_mapped, offset, size, NULL)
            if n == 0:
                kind = 0
                n = self.run(EXTENTS, <Quiet> to_unmapped, offset, size, NULL)
        return -1 if n < 0 else nbdkit_add_extent(extents, offset, n, kind)


cdef object KEPT = None
cdef void* THE_EXPORT = NULL


# --- nbdkit's table. The handle of each connection is the export.

cdef void* on_open(int _) noexcept nogil:
    return THE_EXPORT


cdef int64_t on_get_size(void* of) noexcept nogil:
    return <int64_t> (<Export> of).size


cdef int on_can_write(void* of) noexcept nogil:
    return (<Export> of).writable


cdef int on_yes(void* _) noexcept nogil:
    """For can_multi_conn: all connections share one device, and a flush on one covers what all of them wrote."""
    return 1


cdef int on_no(void* _) noexcept nogil:
    return 0


cdef int on_can_fua(void* _) noexcept nogil:
    return NBDKIT_FUA_NATIVE


cdef int on_block_size(void* of, uint32_t* least, uint32_t* best, uint32_t* most) noexcept nogil:
    least[0] = 1
    best[0] = max(<uint32_t> LEAST_BLOCK, (<Export> of).page_bytes)
    if best[0] & (best[0] - 1):  # it must be a power of two
        best[0] = 4096
    most[0] = LARGEST_REQUEST
    return 0


cdef int on_pread(void* of, void* into, uint32_t count, uint64_t offset, uint32_t _) noexcept nogil:
    return 0 if (<Export> of).run(READ, <Quiet> do_read, offset, count, <uint8_t*> into) >= 0 else -1


cdef int on_pwrite(void* of, const void* data, uint32_t count, uint64_t offset, uint32_t flags) noexcept nogil:
    return 0 if (<Export> of).run(WRITE, <Quiet> do_write, offset, count, <uint8_t*> data,
                                  (flags & NBDKIT_FLAG_FUA) != 0) >= 0 else -1


cdef int on_flush(void* of, uint32_t _) noexcept nogil:
    return 0 if (<Export> of).run(FLUSH, <Quiet> do_flush, 0, 0, NULL) >= 0 else -1


cdef int on_trim(void* of, uint32_t count, uint64_t offset, uint32_t flags) noexcept nogil:
    """Zeroing is a trim too, and always fast: the range reads zeros, and an SSD has room for what it exports."""
    return 0 if (<Export> of).run(TRIM, <Quiet> do_trim, offset, count, NULL,
                                  (flags & NBDKIT_FLAG_FUA) != 0) >= 0 else -1


cdef int on_extents(void* of, uint32_t count, uint64_t offset, uint32_t flags,
                    nbdkit_extents* extents) noexcept nogil:
    return (<Export> of).tell_extents(offset, count, extents)


cdef void add_callbacks "add_callbacks"(nbdkit_plugin* to) noexcept nogil:
    """embed.h calls this before there is an interpreter."""
    to.open = on_open
    to.get_size = on_get_size
    to.can_write = on_can_write
    to.is_rotational = on_no
    to.can_flush = to.can_trim = to.can_zero = to.can_fast_zero = to.can_multi_conn = to.can_extents = on_yes
    to.can_fua = on_can_fua
    to.block_size = on_block_size
    to.pread = on_pread
    to.pwrite = on_pwrite
    to.flush = on_flush
    to.trim = to.zero = on_trim
    to.extents = on_extents
