# pkg-config: fuse3
"""The native server's session: libfuse's low-level interface, answered by the engine without the interpreter.

A thread reads a request, lets the device do it, and answers. Reads, writes, trims and flushes of `disk` take the GIL
only to report an error, for the end of a flush with ``--realtime``, and where the FTL is written in Python. What is
rare (names, attributes, the texts beside `disk`) takes it, and asks flashfs.fuse.tree as the other server does.

There are two threads, and one of them is at the kernel: it waits in read(2), one system call per request, and does
small requests on the spot. When it gets one that takes long (much data, a flush), it leaves its place to the other
thread first. So the data of one request are copied to or from the kernel while the device works for another. Small
requests never cross threads: waking a thread costs more than they do. One lock guards the device; where both are
taken, it is taken before the GIL. With ``--realtime``, where an answer may be due before the next request comes, there
is one thread, which waits in ppoll(2).
"""
cimport cython
from cpython.ref cimport Py_INCREF
from libc.errno cimport (
    EACCES,
    EAGAIN,
    EBADF,
    EBUSY,
    EINTR,
    EINVAL,
    EISDIR,
    ENOENT,
    ENOMEM,
    ENOSPC,
    ENOTCONN,
    ENOTDIR,
    ENOTTY,
    ENXIO,
    EOPNOTSUPP,
    EPERM,
    EROFS,
    errno,
)
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset
from posix.fcntl cimport F_GETFL, F_SETFL, O_ACCMODE, O_DSYNC, O_NONBLOCK, O_RDONLY, O_TRUNC, fcntl
from posix.stat cimport struct_stat
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec
from posix.types cimport dev_t, mode_t, off_t

from flashfs.engine.contract.extent cimport RUN
from flashfs.engine.device.ssd cimport Ssd
from flashfs.engine.device.byte_requests cimport (
    copy_bytes,
    read_bytes,
    remap_bytes,
    seek_mapped,
    trim_bytes,
    write_bytes,
)
from flashfs.engine.device.zero_copy cimport ZeroCopy
from flashfs.fuse._late cimport REPLY_DATA, REPLY_DONE, REPLY_WRITTEN, LateReplies, answer
from flashfs.fuse.includes.libfuse cimport *
from flashfs.fuse.raised cimport errno_of_raised
from flashfs.replay cimport _record
from flashfs.replay._record cimport Recorder

import os
import queue
import threading
from functools import partial

from flashfs.errors import FlashfsError
from flashfs.fuse.errno_of import errno_of
from flashfs.fuse.tree import DISK as TREE_DISK
from flashfs.fuse.tree import ROOT as TREE_ROOT

cdef extern from *:
    """
    #include <linux/falloc.h>
    #include <linux/fs.h>
    #include <poll.h>
    #include <pthread.h>
    #include <signal.h>
    #include <sys/ioctl.h>

    /* A thread that waits in read(2) is woken by a signal that does nothing else. */
    static void wake_handler(int number) { (void) number; }
    static int wake_signal(void) { return SIGRTMIN + 5; }
    static int wake_install(void) {
        struct sigaction action = {0};
        action.sa_handler = wake_handler;   /* no SA_RESTART: read(2) has to return */
        return sigaction(wake_signal(), &action, NULL);
    }

    /* A count that threads change without a lock. */
    static void add_to(int64_t *count, int64_t n) { __atomic_add_fetch(count, n, __ATOMIC_RELAXED); }

    struct flashfs_span { uint64_t source, target, bytes; };
    struct flashfs_remap { uint64_t source, target, bytes, flags; };
    #define FLASHFS_REMAP_MOVE 1
    #define FLASHFS_IOC_CHECKPOINT _IO(0xF5, 1)
    #define FLASHFS_IOC_COPY _IOW(0xF5, 2, struct flashfs_span)
    #define FLASHFS_IOC_REMAP _IOW(0xF5, 3, struct flashfs_remap)
    """
    int wake_signal() nogil
    int wake_install() nogil
    void add_to(int64_t*, int64_t) nogil
    ctypedef struct pthread_mutex_t:
        pass
    int pthread_mutex_init(pthread_mutex_t*, const void*) nogil
    int pthread_mutex_destroy(pthread_mutex_t*) nogil
    int pthread_mutex_lock(pthread_mutex_t*) nogil
    int pthread_mutex_unlock(pthread_mutex_t*) nogil
    ctypedef struct pthread_cond_t:
        pass
    int pthread_cond_init(pthread_cond_t*, const void*) nogil
    int pthread_cond_destroy(pthread_cond_t*) nogil
    int pthread_cond_wait(pthread_cond_t*, pthread_mutex_t*) nogil
    int pthread_cond_broadcast(pthread_cond_t*) nogil
    struct flashfs_span:
        uint64_t source, target, bytes
    struct flashfs_remap:
        uint64_t source, target, bytes, flags
    const unsigned int FLASHFS_IOC_CHECKPOINT, FLASHFS_IOC_COPY, FLASHFS_IOC_REMAP
    const uint64_t FLASHFS_REMAP_MOVE
    const int FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE, SEEK_DATA, SEEK_HOLE
    struct pollfd:
        int fd
        short events
    const short POLLIN
    int ppoll(pollfd*, unsigned long, const timespec*, void*) nogil

cdef extern from "rings.h" nogil:
    enum:
        REPLY_BUFFER_BYTES
    uint8_t* get_buffer()                  # of this thread; NULL: no memory
    void set_buffer(uint8_t*)
    bint rings_known()                     # by this libfuse
    bint rings_offered(fuse_conn_info*)    # by the kernel
    void unset_features(fuse_conn_info*, unsigned int)
    bint maps_allowed(fuse_conn_info*)     # whether files may be mapped and shared; requests it if so
    bint rings_stop(fuse_session*)         # False: their threads use the session until the mount is gone, or longer
    bint is_from_ring(fuse_req_t)
    uint8_t* payload_of(fuse_req_t)
    void* session_of(fuse_req_t)
    int init_short_lock(pthread_mutex_t*)

cdef enum:
    ROOT = 1
    DISK = 2
    DURABLE = 3               # `disk`'s handle where it was opened with O_SYNC or O_DSYNC
    READING = 4               # ... where it was opened for reading only; texts have the next ones
    REQUEST_BYTES = 1 << 20   # the kernel's largest
    RING_REQUESTS = 32        # under way for each processor, over io_uring
    COPY_BYTES = 4 << 20      # of one copy_file_range: the caller asks again for the rest
    LONG_BYTES = 64 << 10     # of a request that is worth another thread
    UNDER_WAY = 64            # asynchronous requests that the kernel may have under way

assert (ROOT, DISK) == (TREE_ROOT, TREE_DISK)
assert REPLY_BUFFER_BYTES == REQUEST_BYTES
cdef double LET_GO_S = 0.5        # at most, that a request waits for the kernel to drop its cached pages
#: whether this libfuse can take requests over io_uring; the kernel decides whether they come so (Session.transport)
KNOWS_RINGS = rings_known()
cdef double FOREVER_S = 86400.0   # names never change

# What each operation counts as in `traffic`.
cdef enum:
    READ = 0
    WRITE = 1
    TRIM = 2
    FLUSH = 3
NAMES = ("read", "write", "trim", "flush")
cdef tuple OPERATIONS = ("read", "write", "trim", "flush", "copy", "seek", "remap")
cdef enum:
    COPY = 4
    SEEK = 5
    REMAP = 6

# The engine's functions raise, and libfuse's handlers cannot. They are called through a type declared noexcept, and -1
# says that an exception is pending. A `try` would take the GIL for each request.
ctypedef int64_t (*Quiet)(Session, uint64_t, uint64_t, uint64_t, uint8_t*, int64_t) noexcept nogil


ctypedef int64_t (*Showing)(Session, uint64_t, uint64_t) noexcept nogil


cdef int64_t find_views(Session self, uint64_t offset, uint64_t size) except -1 nogil:
    return self.views.find(offset, size, 0)


cdef int64_t do_read(Session self, uint64_t offset, uint64_t size, uint64_t _, uint8_t* into,
                     int64_t t_ns) except -1 nogil:
    return read_bytes(self.ssd, offset, size, into, t_ns)


cdef int64_t do_write(Session self, uint64_t offset, uint64_t size, uint64_t _, uint8_t* data,
                      int64_t t_ns) except -1 nogil:
    return write_bytes(self.ssd, offset, size, data, t_ns)


cdef int64_t do_trim(Session self, uint64_t offset, uint64_t size, uint64_t _, uint8_t* __,
                     int64_t t_ns) except -1 nogil:
    return trim_bytes(self.ssd, offset, size, t_ns)


cdef int64_t do_flush(Session self, uint64_t _, uint64_t __, uint64_t ___, uint8_t* ____,
                      int64_t t_ns) except -1 nogil:
    self.ssd.flush(t_ns)
    if self.realtime:
        with gil:
            t_ns = max(t_ns, <int64_t> self.quiet_at())
    return t_ns


cdef int64_t do_copy(Session self, uint64_t source, uint64_t size, uint64_t target, uint8_t* scratch,
                     int64_t t_ns) except -1 nogil:
    return copy_bytes(self.ssd, source, target, size, scratch, REQUEST_BYTES, t_ns)


cdef int64_t do_remap(Session self, uint64_t source, uint64_t size, uint64_t target, uint8_t* scratch,
                      int64_t t_ns) except -1 nogil:
    return remap_bytes(self.ssd, source, target, size, False, scratch, REQUEST_BYTES, t_ns)


cdef int64_t do_move(Session self, uint64_t source, uint64_t size, uint64_t target, uint8_t* scratch,
                     int64_t t_ns) except -1 nogil:
    return remap_bytes(self.ssd, source, target, size, True, scratch, REQUEST_BYTES, t_ns)


cdef int64_t do_seek(Session self, uint64_t offset, uint64_t size, uint64_t mapped, uint8_t* _,
                     int64_t __) except -1 nogil:
    return <int64_t> seek_mapped(self.ssd, offset, size, <bint> mapped)


@cython.final
cdef class Session:
    """A mount. ``serve`` runs in ``threads_wanted`` threads; ``stop`` makes it return in each."""
    cdef fuse_session* session
    cdef Ssd ssd
    cdef object tree, ready, quiet_at, fail_if_lost
    cdef object let_go, cutter             # ranges that the kernel must drop, and the thread that makes it
    cdef dict texts
    cdef uint64_t size, handles
    cdef uint32_t page_bytes
    cdef bint writable, realtime, stopping
    cdef bint closed               # under the device's lock: it takes no more requests
    cdef bint rings                # requests come over io_uring
    cdef bint maps                 # `disk` can be mapped and shared: the kernel keeps pages of it
    cdef int64_t zero_ns          # when virtual time was 0
    cdef LateReplies late
    cdef Recorder recorder        # or None
    cdef pthread_mutex_t place     # held by the thread that is at the kernel
    cdef pthread_mutex_t device    # guards the device and the counts
    cdef ZeroCopy views
    cdef int views_held            # by replies under way: flash must not change until there are none
    cdef pthread_cond_t no_views
    cdef struct_stat disk_stat             # without the times
    cdef int64_t atime_ns, mtime_ns, ctime_ns  # of `disk`, since the epoch: each is stored whole, without a lock
    cdef uint64_t[4] requests              # under the device's lock, as is the next
    cdef uint64_t[4] moved
    cdef int64_t under_way                 # counted before that lock is taken: changed by an atomic addition
    cdef readonly list threads    # that serve

    def __cinit__(self, device, tree, *, bint realtime=False, Recorder recorder=None):
        self.ssd = device.ssd
        self.tree = tree
        self.quiet_at = device.quiet_at
        self.fail_if_lost = device.fail_if_lost
        self.ready = None
        self.texts = {}
        self.size = device.size
        self.page_bytes = device.page_bytes
        self.writable = not device.readonly
        self.handles = READING
        self.realtime = realtime
        self.late = LateReplies()
        self.recorder = recorder
        self.threads = []
        self.let_go = queue.SimpleQueue()
        self.cutter = None
        pthread_mutex_init(&self.place, NULL)
        init_short_lock(&self.device)
        pthread_cond_init(&self.no_views, NULL)
        self.views = ZeroCopy(device.ssd)
        attr = tree.attr(DISK)
        fill_stat(&self.disk_stat, attr)
        self.atime_ns, self.mtime_ns, self.ctime_ns = attr.atime_ns, attr.mtime_ns, attr.ctime_ns

    def __dealloc__(self):
        if self.session != NULL:
            fuse_session_destroy(self.session)
        pthread_mutex_destroy(&self.place)
        pthread_mutex_destroy(&self.device)
        pthread_cond_destroy(&self.no_views)

    def mount(self, mountpoint, options):
        """Raises OSError if libfuse cannot mount; libfuse prints the reason to stderr."""
        cdef fuse_args args
        memset(&args, 0, sizeof(args))
        if rings_known() and not self.realtime:  # replies that wait are sent by one thread
            options = *options, "io_uring", f"io_uring_q_depth={RING_REQUESTS}"
        for word in ("flashfs", "-o", ",".join(("default_permissions", *options))):
            if fuse_opt_add_arg(&args, os.fsencode(word)):
                raise MemoryError
        self.session = fuse_session_new(&args, &OPS, sizeof(OPS), <void*> self)
        fuse_opt_free_args(&args)
        if self.session == NULL:
            raise OSError("libfuse makes no session")
        if fuse_session_mount(self.session, os.fsencode(mountpoint)):
            raise OSError("libfuse does not mount")
        if rings_known() and not self.realtime:
            self.cutter = threading.Thread(target=self.let_pages_go, daemon=True)
            self.cutter.start()

    def unmount(self):
        """Call after ``serve``. A process that still waits for an answer gets ENOTCONN or ECONNABORTED."""
        cdef bint ended = True
        with nogil:                        # libfuse's threads may need the interpreter before they end
            pthread_mutex_lock(&self.device)
            self.closed = True
            pthread_mutex_unlock(&self.device)
        if self.cutter is not None:
            self.let_go.put(None)
            self.cutter.join()
        with nogil:
            if self.rings:
                ended = rings_stop(self.session)
            fuse_session_unmount(self.session)
        if not ended:
            self.session = NULL            # must not be freed while its threads run
            Py_INCREF(self)

    @property
    def transport(self):
        """How requests come: io_uring, or read(2) of /dev/fuse."""
        return "io_uring" if self.rings else "read"

    def traffic(self):
        """What the kernel asked for so far: requests, counted when they begin, and the bytes of those that were done.
        ``in_flight``: requests without an answer, also those that wait for the device or for their virtual end."""
        return {
            "requests": {name: self.requests[i] for i, name in enumerate(NAMES)},
            "bytes": {name: self.moved[i] for i, name in enumerate(NAMES[:3])},
            "in_flight": self.under_way + self.late.waiting,
        }

    # --- the loop

    @property
    def threads_wanted(self):
        return 1 if self.realtime else 2

    def serve(self, ready):
        """Answer requests until the mount is gone or ``stop`` was called; ``ready()`` is called, by a thread that
        serves, when libfuse has agreed on features with the kernel."""
        cdef int result
        cdef uint8_t* buffer = <uint8_t*> malloc(REQUEST_BYTES)
        if buffer == NULL:
            raise MemoryError
        self.ready = ready
        self.threads.append(threading.get_ident())
        try:
            if wake_install() != 0:
                raise OSError(errno, os.strerror(errno))
            if self.realtime:
                self.zero_ns = now_ns() - <int64_t> self.quiet_at()
            set_buffer(buffer)
            with nogil:
                result = self.answer_realtime() if self.realtime else self.answer_all()
        finally:
            self.threads.remove(threading.get_ident())
            free(buffer)
        if result < 0:
            raise FlashfsError(f"reading requests from the kernel failed: {os.strerror(-result)}")

    def stop(self):
        """Make ``serve`` return soon, after the requests under way. Call again until it has: a signal that comes just
        before its thread begins to wait is lost."""
        self.stopping = True
        if self.session != NULL:
            fuse_session_exit(self.session)
        for thread in list(self.threads):
            pthread_wake(thread)

    cdef bint is_over(self) noexcept nogil:
        return self.stopping or fuse_session_exited(self.session)

    cdef int answer_all(self) noexcept nogil:
        """0, or a negative errno."""
        cdef fuse_buf request
        cdef int got = 0
        cdef bint is_long
        memset(&request, 0, sizeof(request))
        while True:
            is_long = False
            pthread_mutex_lock(&self.place)
            while not self.is_over():
                got = fuse_session_receive_buf(self.session, &request)
                if got == -EINTR:
                    continue
                if got <= 0:
                    fuse_session_exit(self.session)  # for the others too
                    break
                is_long = takes_long(&request)
                if is_long:
                    break
                fuse_session_process_buf(self.session, &request)
            pthread_mutex_unlock(&self.place)
            if not is_long:
                break
            fuse_session_process_buf(self.session, &request)
        free(request.mem)
        return 0 if got == -EINTR or got > 0 else got

    cdef int answer_realtime(self) noexcept nogil:
        """As ``answer_all``, and sends replies when they are due."""
        cdef fuse_buf request
        cdef pollfd wait
        cdef timespec left
        cdef timespec* until
        cdef int64_t due
        cdef int got = 0
        memset(&request, 0, sizeof(request))
        wait.fd = fuse_session_fd(self.session)
        wait.events = POLLIN
        fcntl(wait.fd, F_SETFL, fcntl(wait.fd, F_GETFL) | O_NONBLOCK)
        while not fuse_session_exited(self.session) and not self.stopping:
            self.late.send_due(now_ns())
            got = fuse_session_receive_buf(self.session, &request)
            if got == -EAGAIN:
                due = self.late.next_due()
                until = NULL
                if due >= 0:
                    due = max(<int64_t> 0, due - now_ns())
                    left.tv_sec = due // 1000000000
                    left.tv_nsec = due % 1000000000
                    until = &left
                ppoll(&wait, 1, until, NULL)
                continue
            if got == -EINTR:
                continue
            if got <= 0:
                break
            fuse_session_process_buf(self.session, &request)
        self.late.send_due(INT64_MAX)
        free(request.mem)
        return 0 if got == -EINTR or got == -EAGAIN or got > 0 else got

    # --- requests of `disk`

    cdef int64_t t_ns(self) noexcept nogil:
        """The virtual time of a request, in ns: that of its arrival with ``--realtime``, else 0."""
        return now_ns() - self.zero_ns if self.realtime else 0

    cdef int reply(self, fuse_req_t req, int64_t end_ns, int kind, const uint8_t* data, uint64_t size) noexcept nogil:
        if self.realtime and end_ns + self.zero_ns > now_ns():
            return self.late.add(end_ns + self.zero_ns, req, kind, data, size)
        return answer(req, kind, data, size)

    cdef int fail(self, fuse_req_t req, int operation, uint64_t offset) noexcept nogil:
        """Answer with the errno of the pending exception."""
        return fuse_reply_err(req, self.code_of(operation, offset))

    cdef int code_of(self, int operation, uint64_t offset) noexcept nogil:
        """The errno of the pending exception, which is pending no more."""
        with gil:
            return errno_of_raised(self.tree.errno_of, self.fail_if_lost, OPERATIONS[operation], offset)

    cdef bint take_device(self, bint to_change) noexcept nogil:
        """Lock the device; ``to_change``: also wait until no reply is being made from its flash. False, and it is not
        locked, if it is closed: over io_uring, requests come until the mount is gone."""
        pthread_mutex_lock(&self.device)
        while to_change and self.views_held:
            pthread_cond_wait(&self.no_views, &self.device)
        if self.closed:
            pthread_mutex_unlock(&self.device)
        return not self.closed

    cdef bint show(self, fuse_req_t req, uint64_t offset, uint64_t size) noexcept nogil:
        """Answer a read from the image itself, if that is possible: only the kernel copies. The device does other reads
        meanwhile. Returns whether the read was answered."""
        cdef iovec[RUN] parts
        cdef uint32_t i, n
        cdef int64_t end
        add_to(&self.under_way, 1)
        if not self.take_device(False):
            add_to(&self.under_way, -1)
            return False
        end = (<Showing> find_views)(self, offset, size)
        n = self.views.pieces_n if end >= 0 else 0
        for i in range(n):
            parts[i].iov_base = <void*> self.views.pieces[i].data
            parts[i].iov_len = self.views.pieces[i].size
        if n or end < 0:
            self.requests[READ] += 1
        if n:
            self.moved[READ] += size
            self.views_held += 1
        pthread_mutex_unlock(&self.device)
        add_to(&self.under_way, -1)
        if end < 0:
            self.fail(req, READ, offset)
        if n:
            fuse_reply_iov(req, parts, n)
            pthread_mutex_lock(&self.device)
            self.views_held -= 1
            if self.views_held == 0:
                pthread_cond_broadcast(&self.no_views)
            pthread_mutex_unlock(&self.device)
        return n > 0 or end < 0

    cdef void record(self, int op, uint64_t offset, uint64_t size, const uint8_t* data) noexcept nogil:
        """Note the request in the trace, if there is one. The trace counts what it drops."""
        if self.recorder is not None:
            self.recorder.note(op, offset, size, data)

    cdef void record_copy(self, uint64_t source, uint64_t target, uint64_t size) noexcept nogil:
        """Note a copy in the trace: on a device that remaps, it is a remap."""
        if self.recorder is None:
            return
        if self.ssd.mapping.remapping is not None:
            self.recorder.note_from(_record.REMAP, source, target, size)
        else:
            self.recorder.note_from(_record.COPY, source, target, size)

    cdef int run(self, fuse_req_t req, int operation, Quiet function, uint64_t offset, uint64_t size, uint64_t other,
                 uint8_t* data, int kind, bint durable=False) noexcept nogil:
        """Do the request, count it, answer it. ``durable``: a flush follows, whose failure is the request's."""
        cdef int64_t end
        add_to(&self.under_way, 1)
        if not self.take_device(operation != READ):
            add_to(&self.under_way, -1)
            return fuse_reply_err(req, ENOTCONN)
        if operation < COPY:
            self.requests[operation] += 1
        end = function(self, offset, size, other, data, self.t_ns())
        if operation != READ and operation != FLUSH:
            self.note_change()             # one that failed may have changed some pages
        if end >= 0 and durable:
            end = self.flush_after(end)
        if end >= 0 and operation < COPY:
            self.moved[operation] += size
        pthread_mutex_unlock(&self.device)
        add_to(&self.under_way, -1)  # before the reply: its receiver may read the counts at once
        if end < 0:
            return self.fail(req, operation, offset)
        return self.reply(req, end, kind, data, size)

    cdef int64_t flush_after(self, int64_t end) noexcept nogil:
        """The flush of a durable request that ended at ``end``; the device is held."""
        cdef int64_t flushed
        self.record(_record.FLUSH, 0, 0, NULL)
        self.requests[FLUSH] += 1
        flushed = (<Quiet> do_flush)(self, 0, 0, 0, NULL, end)
        return flushed if flushed < 0 else max(end, flushed)

    cdef int read(self, fuse_req_t req, fuse_ino_t ino, uint64_t size, uint64_t offset, uint64_t handle) noexcept nogil:
        cdef uint8_t* into
        if ino != DISK:
            return self.read_text(req, handle, offset, size)
        if offset >= self.size:
            return fuse_reply_buf(req, NULL, 0)
        size = min(min(size, self.size - offset), <uint64_t> REQUEST_BYTES)
        self.record(_record.READ, offset, size, NULL)
        if size >= LONG_BYTES and not self.realtime and self.show(req, offset, size):
            return 0
        into = payload_of(req)
        if into == NULL:
            into = get_buffer()
        return self.run(req, READ, <Quiet> do_read, offset, size, 0, into, REPLY_DATA) if into != NULL else (
            fuse_reply_err(req, ENOMEM))

    cdef int write(self, fuse_req_t req, fuse_ino_t ino, const char* data, uint64_t size, uint64_t offset,
                   uint64_t handle, bint durable) noexcept nogil:
        """``durable``: the file was opened with O_DSYNC or O_SYNC, or this write asks for it. No FSYNC follows."""
        if ino != DISK:
            return self.obey(req, ino, data, size, handle)
        if size and offset >= self.size:
            return fuse_reply_err(req, ENOSPC)
        size = min(size, self.size - offset) if size else 0
        self.record(_record.WRITE, offset, size, <const uint8_t*> data)
        return self.run(req, WRITE, <Quiet> do_write, offset, size, 0, <uint8_t*> data, REPLY_WRITTEN,
                        durable and size > 0)

    cdef int sync(self, fuse_req_t req, fuse_ino_t ino) noexcept nogil:
        """A flush, whatever ``datasync`` says: a loop device sends one kind, a database the other."""
        if ino != DISK and ino != ROOT:
            return fuse_reply_err(req, 0)
        self.record(_record.FLUSH, 0, 0, NULL)
        return self.run(req, FLUSH, <Quiet> do_flush, 0, 0, 0, NULL, REPLY_DONE)

    cdef int allocate(self, fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
                      bint durable) noexcept nogil:
        """Punching and zeroing are both a trim: the range reads zeros and takes no room. Plain
        allocation always succeeds within the device, and never beyond its end."""
        cdef uint64_t end
        if ino != DISK:
            return fuse_reply_err(req, EACCES)
        if offset < 0 or length <= 0 or length > INT64_MAX - offset:
            return fuse_reply_err(req, EINVAL)
        end = <uint64_t> (offset + length)
        if mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE):
            return fuse_reply_err(req, EOPNOTSUPP)
        if end > self.size and not mode & FALLOC_FL_KEEP_SIZE:
            return fuse_reply_err(req, ENOSPC)
        if not mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE) or <uint64_t> offset >= self.size:
            return fuse_reply_err(req, 0)
        end = min(end, self.size)
        self.record(_record.ZERO if mode & FALLOC_FL_ZERO_RANGE else _record.TRIM, offset, end - offset, NULL)
        return self.run(req, TRIM, <Quiet> do_trim, offset, end - offset, 0, NULL, REPLY_DONE, durable)

    cdef int copy(self, fuse_req_t req, fuse_ino_t source_ino, off_t source, fuse_ino_t target_ino, off_t target,
                  uint64_t size, bint durable) noexcept nogil:
        if source_ino != DISK or target_ino != DISK:
            return fuse_reply_err(req, EBADF)
        if source < 0 or target < 0:
            return fuse_reply_err(req, EINVAL)
        if <uint64_t> source >= self.size:
            return fuse_reply_write(req, 0)
        if <uint64_t> target >= self.size:
            return fuse_reply_err(req, ENOSPC)
        size = min(min(size, <uint64_t> COPY_BYTES), self.size - <uint64_t> max(source, target))
        if <uint64_t> abs(source - target) < size:
            return fuse_reply_err(req, EINVAL)
        if get_buffer() == NULL:
            return fuse_reply_err(req, ENOMEM)
        self.record_copy(source, target, size)
        return self.run(req, COPY, <Quiet> do_copy, source, size, target, get_buffer(), REPLY_WRITTEN, durable)

    cdef int seek(self, fuse_req_t req, fuse_ino_t ino, off_t offset, int whence) noexcept nogil:
        cdef int64_t found
        if ino != DISK or (whence != SEEK_DATA and whence != SEEK_HOLE):
            return fuse_reply_err(req, EINVAL)
        if offset < 0 or <uint64_t> offset >= self.size:
            return fuse_reply_err(req, ENXIO)
        if not self.take_device(False):
            return fuse_reply_err(req, ENOTCONN)
        found = (<Quiet> do_seek)(self, offset, self.size - <uint64_t> offset, whence == SEEK_DATA, NULL, 0)
        pthread_mutex_unlock(&self.device)
        if found < 0:
            return self.fail(req, SEEK, offset)
        if whence == SEEK_DATA and <uint64_t> (offset + found) >= self.size:
            return fuse_reply_err(req, ENXIO)
        return fuse_reply_lseek(req, offset + found)

    cdef int command(self, fuse_req_t req, fuse_ino_t ino, unsigned int number, const void* data, uint64_t size,
                     uint64_t handle) noexcept nogil:
        """ioctl(2): the device's own commands; see flashfs.fuse.commands. The kernel passes those of a file that is
        open for reading only, too."""
        cdef flashfs_span span
        cdef flashfs_remap moved
        cdef int failed = 0
        if ino != DISK:
            return fuse_reply_err(req, ENOTTY)
        if handle == READING and (number == FLASHFS_IOC_REMAP or number == FLASHFS_IOC_COPY):
            return fuse_reply_err(req, EBADF)
        if get_buffer() == NULL:
            return fuse_reply_err(req, ENOMEM)
        if number == FLASHFS_IOC_CHECKPOINT:
            if not self.take_device(True):
                return fuse_reply_err(req, ENOTCONN)
            with gil:
                try:
                    self.ssd.checkpoint()
                except Exception as error:
                    failed = self.tree.errno_of("checkpoint", 0, error)
            pthread_mutex_unlock(&self.device)
            return fuse_reply_err(req, failed) if failed else fuse_reply_ioctl(req, 0, NULL, 0)
        if number == FLASHFS_IOC_REMAP and size >= sizeof(moved):
            memcpy(&moved, data, sizeof(moved))
            return self.remap(req, &moved, handle == DURABLE)
        if number != FLASHFS_IOC_COPY or size < sizeof(span):
            return fuse_reply_err(req, ENOTTY)
        memcpy(&span, data, sizeof(span))
        if (span.bytes > self.size or span.source > self.size - span.bytes or span.target > self.size - span.bytes
                or max(span.source, span.target) - min(span.source, span.target) < span.bytes):
            return fuse_reply_err(req, EINVAL)
        self.record_copy(span.source, span.target, span.bytes)
        if not self.take_device(True):
            return fuse_reply_err(req, ENOTCONN)
        failed = self.change(<Quiet> do_copy, COPY, span.source, span.bytes, span.target, handle == DURABLE)
        if self.maps and span.bytes:       # after a copy_file_range the kernel does it itself
            self.take_pages(req, span.target, span.bytes)
        return fuse_reply_err(req, failed) if failed else fuse_reply_ioctl(req, 0, NULL, 0)

    cdef int change(self, Quiet function, int operation, uint64_t source, uint64_t size, uint64_t target,
                    bint durable) noexcept nogil:
        """Do what an ioctl asks, and release the device, which is held. Returns an errno, or 0; no exception is pending
        then, for what follows may need the interpreter."""
        cdef int64_t end = function(self, source, size, target, get_buffer(), self.t_ns())
        self.note_change()
        if end >= 0 and durable:
            end = self.flush_after(end)
        pthread_mutex_unlock(&self.device)
        return self.code_of(operation, source) if end < 0 else 0

    cdef int remap(self, fuse_req_t req, const flashfs_remap* asked, bint durable) noexcept nogil:
        """Ranges may overlap; an unknown flag is refused."""
        cdef bint move = (asked.flags & FLASHFS_REMAP_MOVE) != 0
        cdef int failed
        if (asked.flags & ~FLASHFS_REMAP_MOVE or asked.bytes > self.size or asked.source > self.size - asked.bytes
                or asked.target > self.size - asked.bytes):
            return fuse_reply_err(req, EINVAL)
        if not self.writable:
            return fuse_reply_err(req, EROFS)
        if self.recorder is not None:
            self.recorder.note_from(_record.MOVE if move else _record.REMAP, asked.source, asked.target, asked.bytes)
        if not self.take_device(True):
            return fuse_reply_err(req, ENOTCONN)
        failed = self.change(<Quiet> do_move if move else <Quiet> do_remap, REMAP, asked.source, asked.bytes,
                             asked.target, durable)
        if self.maps and asked.bytes:
            self.take_pages(req, asked.target, asked.bytes)
            if move:
                self.take_pages(req, asked.source, asked.bytes)
        return fuse_reply_err(req, failed) if failed else fuse_reply_ioctl(req, 0, NULL, 0)

    # --- names and texts: rare, and with the interpreter

    cdef int read_text(self, fuse_req_t req, uint64_t handle, uint64_t offset, uint64_t size) noexcept nogil:
        with gil:
            text = self.texts.get(handle)
            if text is None:
                return fuse_reply_err(req, EBADF)
            part = text[offset:offset + size]
            return fuse_reply_buf(req, <const char*> part, len(part))

    cdef int obey(self, fuse_req_t req, fuse_ino_t ino, const char* data, uint64_t size,
                  uint64_t handle) noexcept nogil:
        """A command; its answer is what is read by this handle from now on."""
        cdef int failed = EBADF
        if not self.take_device(True):
            return fuse_reply_err(req, ENOTCONN)
        with gil:
            try:
                if self.tree.takes_commands(ino) and handle in self.texts:
                    tell = partial(self.texts.__setitem__, handle)
                    said, done = self.tree.obey(ino, <bytes> data[:size], tell)
                    self.texts[handle] = said
                    failed = 0 if done else EINVAL
            except Exception as error:
                failed = errno_of("control", 0, error)
        pthread_mutex_unlock(&self.device)
        return fuse_reply_err(req, failed) if failed else fuse_reply_write(req, size)

    cdef int open(self, fuse_req_t req, fuse_ino_t ino, int flags) noexcept nogil:
        """With direct I/O: every request of the host is a request of the device; and a cached text would be cut at the
        size that some earlier one had."""
        cdef fuse_open_out out
        cdef int failed = 0
        memset(&out, 0, sizeof(out))
        out.fh = DISK
        out.open_flags = FOPEN_DIRECT_IO
        if ino == DISK:
            if flags & O_ACCMODE == O_RDONLY:
                out.fh = READING
            elif flags & O_DSYNC:  # O_SYNC includes it; only writes come with the flags of their file
                out.fh = DURABLE
            # Writes need not wait for each other. libfuse 3.14 has no name for this flag.
            out.open_flags |= FOPEN_PARALLEL_DIRECT_WRITES
            return fuse_reply_buf(req, <const char*> &out, sizeof(out))
        if not self.take_device(False):     # a text is made of what the device says
            return fuse_reply_err(req, ENOTCONN)
        with gil:
            try:
                if not self.tree.is_text(ino):
                    failed = EISDIR if ino == ROOT else ENOENT
                elif (flags & O_ACCMODE != O_RDONLY or flags & O_TRUNC) and not self.tree.takes_commands(ino):
                    failed = EACCES
                else:
                    text = self.tree.text(ino)
                    self.handles += 1
                    self.texts[self.handles] = text
                    out.fh = self.handles
            except Exception as error:
                failed = errno_of("open", 0, error)
        pthread_mutex_unlock(&self.device)
        if failed:
            return fuse_reply_err(req, failed)
        return fuse_reply_buf(req, <const char*> &out, sizeof(out))

    cdef int release(self, fuse_req_t req, uint64_t handle) noexcept nogil:
        if handle > READING:
            with gil:
                self.texts.pop(handle, None)
        return fuse_reply_err(req, 0)

    cdef int lookup(self, fuse_req_t req, fuse_ino_t parent, const char* name) noexcept nogil:
        cdef fuse_entry_param entry
        cdef bint found = False
        memset(&entry, 0, sizeof(entry))
        with gil:
            inode = self.tree.inode(<bytes> name) if parent == ROOT else None
            if inode is not None:
                found = True
                entry.ino = inode
                fill_stat(&entry.attr, self.tree.attr(inode))
                entry.attr_timeout = FOREVER_S if inode == ROOT else 0.0
                entry.entry_timeout = FOREVER_S
        if found and entry.ino == DISK:
            self.stat_disk(&entry.attr)
        return fuse_reply_entry(req, &entry) if found else fuse_reply_err(req, ENOENT)

    cdef int attributes(self, fuse_req_t req, fuse_ino_t ino) noexcept nogil:
        """Only the root's are cached: sizes of texts and the times of `disk` change."""
        cdef struct_stat out
        if ino == DISK:
            self.stat_disk(&out)
            return fuse_reply_attr(req, &out, 0.0)
        with gil:
            attr = self.tree.attr(ino)
            if attr is None:
                return fuse_reply_err(req, ENOENT)
            fill_stat(&out, attr)
        return fuse_reply_attr(req, &out, FOREVER_S if ino == ROOT else 0.0)

    cdef void stat_disk(self, struct_stat* out) noexcept nogil:
        memcpy(out, &self.disk_stat, sizeof(struct_stat))
        set_time(&out.st_atim, self.atime_ns)
        set_time(&out.st_mtim, self.mtime_ns)
        set_time(&out.st_ctim, self.ctime_ns)

    cdef void note_change(self) noexcept nogil:
        """`disk` was written, trimmed or remapped, now: programs that copy what changed ask for this."""
        self.mtime_ns = self.ctime_ns = wall_ns()

    cdef int set_attributes(self, fuse_req_t req, fuse_ino_t ino, struct_stat* attr, int what,
                            bint durable) noexcept nogil:
        """An SSD has one size and one owner; truncation trims what is cut off. Only `disk` takes times. A shell that
        redirects into `control` or `mark` truncates it first, which has no effect."""
        if what & (FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID):
            return fuse_reply_err(req, EPERM)
        if ino != DISK:
            if what & FUSE_SET_ATTR_SIZE and self.takes_commands(ino):
                return self.attributes(req, ino)
            return fuse_reply_err(req, EPERM)
        if what & FUSE_SET_ATTR_SIZE and <uint64_t> attr.st_size > self.size:
            return fuse_reply_err(req, EPERM)
        if what & FUSE_SET_ATTR_SIZE and <uint64_t> attr.st_size < self.size:
            return self.cut(req, attr.st_size, durable)
        if what & FUSE_SET_ATTR_ATIME:
            self.atime_ns = time_of(&attr.st_atim)
        if what & FUSE_SET_ATTR_MTIME:
            self.mtime_ns = time_of(&attr.st_mtim)
        if what & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME):
            self.ctime_ns = wall_ns()
        return self.attributes(req, ino)

    cdef bint takes_commands(self, fuse_ino_t ino) noexcept nogil:
        with gil:
            return self.tree.takes_commands(ino)

    cdef int cut(self, fuse_req_t req, uint64_t size, bint durable) noexcept nogil:
        """Truncation: what lies beyond ``size`` is trimmed, and the size does not change."""
        cdef int64_t end
        cdef int failed = 0
        with gil:
            try:
                failed = EBUSY if self.tree.is_used() else 0
            except Exception as error:
                failed = errno_of("truncation", size, error)
        if failed:
            return fuse_reply_err(req, failed)
        if not self.writable:
            return fuse_reply_err(req, EROFS)
        self.record(_record.TRIM, size, self.size - size, NULL)
        add_to(&self.under_way, 1)
        if not self.take_device(True):
            add_to(&self.under_way, -1)
            return fuse_reply_err(req, ENOTCONN)
        self.requests[TRIM] += 1
        end = (<Quiet> do_trim)(self, size, self.size - size, 0, NULL, self.t_ns())
        self.note_change()
        if end >= 0 and durable:
            self.record(_record.FLUSH, 0, 0, NULL)
            self.requests[FLUSH] += 1
            end = (<Quiet> do_flush)(self, 0, 0, 0, NULL, end)
        if end >= 0:
            self.moved[TRIM] += self.size - size
        pthread_mutex_unlock(&self.device)
        add_to(&self.under_way, -1)
        if end < 0:
            return self.fail(req, TRIM, size)
        # The kernel drops its cached pages of the rest only if the size changes.
        if not self.realtime:
            self.take_pages(req, size, 0)
        return self.attributes(req, DISK)

    cdef void take_pages(self, fuse_req_t req, uint64_t offset, uint64_t size) noexcept nogil:
        """Make the kernel drop the pages of a range of `disk` that it keeps for mappings; ``size`` 0: up to the end.
        The kernel may wait for a read under way, and for pages written through a mapping: the other thread answers
        those. A ring has only this thread, which therefore waits for LET_GO_S at most."""
        if not is_from_ring(req):
            fuse_lowlevel_notify_inval_inode(self.session, DISK, offset, size)
            return
        with gil:
            done = threading.Event()
            self.let_go.put((offset, size, done))
            done.wait(LET_GO_S)

    def let_pages_go(self):
        """Runs in a thread of its own, for requests that came over a ring. It answers none of them: only a ring's own
        thread may use the ring. libfuse 3.18 would submit an entry while another thread still writes it, and the kernel
        would take garbage until memory runs out; and io_uring cancels what a thread has submitted when it ends."""
        cdef uint64_t offset, size
        for offset, size, done in iter(self.let_go.get, None):
            with nogil:
                fuse_lowlevel_notify_inval_inode(self.session, DISK, offset, size)
            done.set()

    cdef int list_names(self, fuse_req_t req, fuse_ino_t ino, uint64_t size, uint64_t start) noexcept nogil:
        cdef char* at = <char*> get_buffer()
        cdef size_t used = 0, need
        cdef uint64_t index = 0
        cdef struct_stat attr
        if at == NULL:
            return fuse_reply_err(req, ENOMEM)
        size = min(size, <uint64_t> REQUEST_BYTES)
        with gil:
            for name, inode in self.tree.entries():
                index += 1
                if index <= start:
                    continue
                fill_stat(&attr, self.tree.attr(inode))
                need = fuse_add_direntry(req, at + used, size - used, <const char*> (<bytes> name), &attr, index)
                if need > size - used:
                    break
                used += need
        return fuse_reply_buf(req, at, used)

    cdef int space(self, fuse_req_t req) noexcept nogil:
        """A loop device uses f_bsize as the granularity of its discards."""
        cdef statvfs_t out
        memset(&out, 0, sizeof(out))
        out.f_bsize = out.f_frsize = self.page_bytes
        out.f_blocks = self.size // self.page_bytes
        out.f_namemax = 255
        with gil:
            out.f_files = len(list(self.tree.entries()))
        return fuse_reply_statfs(req, &out)


cdef bint takes_long(const fuse_buf* request) noexcept nogil:
    """Whether the other thread should read what comes next while this request is done."""
    cdef const fuse_in_header* head = <const fuse_in_header*> request.mem
    cdef const fuse_ioctl_in* asked
    if head.opcode == FUSE_READ:
        return (<const fuse_read_in*> (head + 1)).size >= LONG_BYTES
    if head.opcode == FUSE_IOCTL:
        asked = <const fuse_ioctl_in*> (head + 1)
        return asked.in_size >= sizeof(flashfs_span)  # a copy or a remap: it may have to wait for writes of a mapping
    if head.opcode == FUSE_WRITE and (head.nodeid != DISK or (<const fuse_write_in*> (head + 1)).flags & O_DSYNC):
        return True                       # a command may build a whole HTML page, and its progress is read meanwhile
    return head.opcode in (FUSE_FSYNC, FUSE_FALLOCATE, FUSE_SETATTR, FUSE_COPY_FILE_RANGE) or head.len >= LONG_BYTES


cdef int fill_stat(struct_stat* out, attr) except -1:
    """Fill stat(2)'s structure with what flashfs.fuse.tree says of a node."""
    memset(out, 0, sizeof(struct_stat))
    out.st_ino = attr.inode
    out.st_mode = attr.mode
    out.st_nlink = attr.links
    out.st_uid = attr.uid
    out.st_gid = attr.gid
    out.st_size = attr.size
    out.st_blksize = attr.block_bytes
    out.st_blocks = attr.blocks
    set_time(&out.st_atim, attr.atime_ns)
    set_time(&out.st_mtim, attr.mtime_ns)
    set_time(&out.st_ctim, attr.ctime_ns)
    return 0


cdef void set_time(timespec* into, int64_t ns) noexcept nogil:
    """``ns`` since the epoch, rounded down as the kernel does: nanoseconds are never below 0."""
    into.tv_sec = ns // 1_000_000_000 - (ns % 1_000_000_000 < 0)
    into.tv_nsec = ns - <int64_t> into.tv_sec * 1_000_000_000


cdef int64_t time_of(const timespec* found) noexcept nogil:
    """In ns since the epoch; the first or last that 64 bits hold, if it lies beyond."""
    cdef int64_t most = 9_223_372_035
    return max(-most, min(most, <int64_t> found.tv_sec)) * 1_000_000_000 + found.tv_nsec


cdef int64_t wall_ns() noexcept nogil:
    """Since the epoch."""
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return time_of(&now)


cdef int64_t now_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec * <int64_t> 1000000000 + now.tv_nsec


def pthread_wake(thread):
    """Interrupt what the thread waits for. It may have ended meanwhile."""
    import signal
    try:
        signal.pthread_kill(thread, wake_signal())
    except ProcessLookupError:
        pass


# --- libfuse's table. A handler's session is what was given to fuse_session_new; it outlives its requests.

cdef void on_init(void* self, fuse_conn_info* conn) noexcept nogil:
    unset_features(conn,
                   FUSE_CAP_WRITEBACK_CACHE | FUSE_CAP_AUTO_INVAL_DATA  # what was acknowledged has reached the device
                   | FUSE_CAP_ATOMIC_O_TRUNC  # instead the kernel sends a SETATTR, and learns that the size stays
                   | FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE)
    conn.max_write = REQUEST_BYTES
    conn.max_background = UNDER_WAY
    conn.congestion_threshold = UNDER_WAY * 3 // 4
    if not (<Session> self).realtime:      # its one thread could not answer while the kernel drops a mapping's pages
        (<Session> self).rings = rings_offered(conn)
        (<Session> self).maps = maps_allowed(conn)
    with gil:
        (<Session> self).ready()


cdef void on_lookup(fuse_req_t req, fuse_ino_t parent, const char* name) noexcept nogil:
    (<Session> session_of(req)).lookup(req, parent, name)


cdef void on_name(fuse_req_t req, fuse_ino_t _, const char* __) noexcept nogil:
    """unlink, rmdir: the names are fixed."""
    fuse_reply_err(req, EPERM)


cdef void on_mkdir(fuse_req_t req, fuse_ino_t _, const char* __, mode_t ___) noexcept nogil:
    fuse_reply_err(req, EPERM)


cdef void on_mknod(fuse_req_t req, fuse_ino_t _, const char* __, mode_t ___, dev_t ____) noexcept nogil:
    fuse_reply_err(req, EPERM)


cdef void on_create(fuse_req_t req, fuse_ino_t _, const char* __, mode_t ___, fuse_file_info* ____) noexcept nogil:
    fuse_reply_err(req, EPERM)


cdef void on_symlink(fuse_req_t req, const char* _, fuse_ino_t __, const char* ___) noexcept nogil:
    fuse_reply_err(req, EPERM)


cdef void on_link(fuse_req_t req, fuse_ino_t _, fuse_ino_t __, const char* ___) noexcept nogil:
    fuse_reply_err(req, EPERM)


cdef void on_rename(fuse_req_t req, fuse_ino_t _, const char* __, fuse_ino_t ___, const char* ____,
                    unsigned int _____) noexcept nogil:
    fuse_reply_err(req, EPERM)


cdef void on_getattr(fuse_req_t req, fuse_ino_t ino, fuse_file_info* _) noexcept nogil:
    (<Session> session_of(req)).attributes(req, ino)


cdef void on_setattr(fuse_req_t req, fuse_ino_t ino, struct_stat* attr, int what,
                     fuse_file_info* info) noexcept nogil:
    (<Session> session_of(req)).set_attributes(
        req, ino, attr, what, info != NULL and info.fh == DURABLE)


cdef void on_open(fuse_req_t req, fuse_ino_t ino, fuse_file_info* info) noexcept nogil:
    (<Session> session_of(req)).open(req, ino, info.flags)


cdef void on_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, fuse_file_info* info) noexcept nogil:
    (<Session> session_of(req)).read(req, ino, size, offset, info.fh)


cdef void on_write(fuse_req_t req, fuse_ino_t ino, const char* data, size_t size, off_t offset,
                   fuse_file_info* info) noexcept nogil:
    (<Session> session_of(req)).write(req, ino, data, size, offset, info.fh, (info.flags & O_DSYNC) != 0)


cdef void on_flush(fuse_req_t req, fuse_ino_t _, fuse_file_info* __) noexcept nogil:
    fuse_reply_err(req, 0)  # close(2) promises nothing on a block device either


cdef void on_release(fuse_req_t req, fuse_ino_t _, fuse_file_info* info) noexcept nogil:
    (<Session> session_of(req)).release(req, info.fh)


cdef void on_fsync(fuse_req_t req, fuse_ino_t ino, int _, fuse_file_info* __) noexcept nogil:
    (<Session> session_of(req)).sync(req, ino)


cdef void on_opendir(fuse_req_t req, fuse_ino_t ino, fuse_file_info* info) noexcept nogil:
    if ino != ROOT:
        fuse_reply_err(req, ENOTDIR)
    else:
        fuse_reply_open(req, info)


cdef void on_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t start, fuse_file_info* _) noexcept nogil:
    (<Session> session_of(req)).list_names(req, ino, size, start)


cdef void on_statfs(fuse_req_t req, fuse_ino_t _) noexcept nogil:
    (<Session> session_of(req)).space(req)


cdef void on_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int number, void* _, fuse_file_info* info, unsigned __,
                   const void* data, size_t size, size_t ___) noexcept nogil:
    (<Session> session_of(req)).command(req, ino, number, data, size, info.fh)


cdef void on_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
                       fuse_file_info* info) noexcept nogil:
    (<Session> session_of(req)).allocate(req, ino, mode, offset, length, info.fh == DURABLE)


cdef void on_copy(fuse_req_t req, fuse_ino_t source_ino, off_t source, fuse_file_info* _, fuse_ino_t target_ino,
                  off_t target, fuse_file_info* info, size_t size, int flags) noexcept nogil:
    if flags:
        fuse_reply_err(req, EINVAL)
    else:
        (<Session> session_of(req)).copy(req, source_ino, source, target_ino, target, size, info.fh == DURABLE)


cdef void on_lseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence, fuse_file_info* _) noexcept nogil:
    (<Session> session_of(req)).seek(req, ino, offset, whence)


cdef fuse_lowlevel_ops OPS
memset(&OPS, 0, sizeof(OPS))
OPS.init = on_init
OPS.lookup = on_lookup
OPS.getattr = on_getattr
OPS.setattr = on_setattr
OPS.mkdir = on_mkdir
OPS.mknod = on_mknod
OPS.create = on_create
OPS.symlink = on_symlink
OPS.link = on_link
OPS.rename = on_rename
OPS.unlink = on_name
OPS.rmdir = on_name
OPS.open = on_open
OPS.read = on_read
OPS.write = on_write
OPS.flush = on_flush
OPS.release = on_release
OPS.fsync = on_fsync
OPS.fsyncdir = on_fsync
OPS.opendir = on_opendir
OPS.readdir = on_readdir
OPS.statfs = on_statfs
OPS.ioctl = on_ioctl
OPS.fallocate = on_fallocate
OPS.copy_file_range = on_copy
OPS.lseek = on_lseek
