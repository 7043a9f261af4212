# libfuse's low-level interface, as far as flashfs.fuse._native uses it (Debian 12 has 3.14).
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from posix.stat cimport struct_stat
from posix.types cimport dev_t, mode_t, off_t

cdef extern from "<sys/statvfs.h>" nogil:
    struct statvfs_t "statvfs":
        unsigned long f_bsize, f_frsize, f_blocks, f_files, f_namemax

cdef extern from "<linux/fuse.h>" nogil:
    enum:
        FOPEN_DIRECT_IO
        FOPEN_PARALLEL_DIRECT_WRITES
        FUSE_READ
        FUSE_SETATTR
        FUSE_WRITE
        FUSE_FSYNC
        FUSE_FALLOCATE
        FUSE_COPY_FILE_RANGE
        FUSE_IOCTL
    struct fuse_in_header:
        uint32_t len, opcode
        uint64_t nodeid
    struct fuse_ioctl_in:
        uint32_t in_size
    struct fuse_read_in:
        uint32_t size
    struct fuse_write_in:
        uint32_t flags
    struct fuse_open_out:
        uint64_t fh
        uint32_t open_flags

cdef extern from *:
    """
    #define FUSE_USE_VERSION 35
    #include <fuse_lowlevel.h>
    """

cdef extern from "<fuse_lowlevel.h>" nogil:
    ctypedef uint64_t fuse_ino_t
    struct fuse_req
    ctypedef fuse_req* fuse_req_t
    struct fuse_session

    enum:
        FUSE_SET_ATTR_MODE
        FUSE_SET_ATTR_UID
        FUSE_SET_ATTR_GID
        FUSE_SET_ATTR_SIZE
        FUSE_SET_ATTR_ATIME
        FUSE_SET_ATTR_MTIME
        FUSE_IOCTL_DIR
        FUSE_IOCTL_UNRESTRICTED
        FUSE_CAP_WRITEBACK_CACHE
        FUSE_CAP_SPLICE_READ
        FUSE_CAP_SPLICE_WRITE
        FUSE_CAP_SPLICE_MOVE
        FUSE_CAP_AUTO_INVAL_DATA
        FUSE_CAP_ATOMIC_O_TRUNC
        FUSE_BUF_SPLICE_MOVE

    struct fuse_conn_info:
        unsigned int max_write, max_read, max_readahead, max_background, congestion_threshold, capable, want

    struct fuse_file_info:
        int flags
        uint64_t fh
        unsigned int direct_io
        unsigned int keep_cache

    struct fuse_entry_param:
        fuse_ino_t ino
        struct_stat attr
        double attr_timeout, entry_timeout

    struct fuse_args:
        int argc
        char** argv

    struct fuse_buf:
        size_t size
        void* mem

    struct iovec:
        void* iov_base
        size_t iov_len

    struct fuse_lowlevel_ops:
        void (*init)(void*, fuse_conn_info*) noexcept nogil
        void (*lookup)(fuse_req_t, fuse_ino_t, const char*) noexcept nogil
        void (*getattr)(fuse_req_t, fuse_ino_t, fuse_file_info*) noexcept nogil
        void (*setattr)(fuse_req_t, fuse_ino_t, struct_stat*, int, fuse_file_info*) noexcept nogil
        void (*mkdir)(fuse_req_t, fuse_ino_t, const char*, mode_t) noexcept nogil
        void (*mknod)(fuse_req_t, fuse_ino_t, const char*, mode_t, dev_t) noexcept nogil
        void (*create)(fuse_req_t, fuse_ino_t, const char*, mode_t, fuse_file_info*) noexcept nogil
        void (*symlink)(fuse_req_t, const char*, fuse_ino_t, const char*) noexcept nogil
        void (*link)(fuse_req_t, fuse_ino_t, fuse_ino_t, const char*) noexcept nogil
        void (*rename)(fuse_req_t, fuse_ino_t, const char*, fuse_ino_t, const char*, unsigned int) noexcept nogil
        void (*unlink)(fuse_req_t, fuse_ino_t, const char*) noexcept nogil
        void (*rmdir)(fuse_req_t, fuse_ino_t, const char*) noexcept nogil
        void (*open)(fuse_req_t, fuse_ino_t, fuse_file_info*) noexcept nogil
        void (*read)(fuse_req_t, fuse_ino_t, size_t, off_t, fuse_file_info*) noexcept nogil
        void (*write)(fuse_req_t, fuse_ino_t, const char*, size_t, off_t, fuse_file_info*) noexcept nogil
        void (*flush)(fuse_req_t, fuse_ino_t, fuse_file_info*) noexcept nogil
        void (*release)(fuse_req_t, fuse_ino_t, fuse_file_info*) noexcept nogil
        void (*fsync)(fuse_req_t, fuse_ino_t, int, fuse_file_info*) noexcept nogil
        void (*opendir)(fuse_req_t, fuse_ino_t, fuse_file_info*) noexcept nogil
        void (*readdir)(fuse_req_t, fuse_ino_t, size_t, off_t, fuse_file_info*) noexcept nogil
        void (*fsyncdir)(fuse_req_t, fuse_ino_t, int, fuse_file_info*) noexcept nogil
        void (*statfs)(fuse_req_t, fuse_ino_t) noexcept nogil
        void (*ioctl)(fuse_req_t, fuse_ino_t, unsigned int, void*, fuse_file_info*, unsigned, const void*, size_t,
                      size_t) noexcept nogil
        void (*fallocate)(fuse_req_t, fuse_ino_t, int, off_t, off_t, fuse_file_info*) noexcept nogil
        void (*copy_file_range)(fuse_req_t, fuse_ino_t, off_t, fuse_file_info*, fuse_ino_t, off_t, fuse_file_info*,
                                size_t, int) noexcept nogil
        void (*lseek)(fuse_req_t, fuse_ino_t, off_t, int, fuse_file_info*) noexcept nogil

    void* fuse_req_userdata(fuse_req_t)
    int fuse_reply_err(fuse_req_t, int)
    int fuse_reply_entry(fuse_req_t, const fuse_entry_param*)
    int fuse_reply_attr(fuse_req_t, const struct_stat*, double)
    int fuse_reply_open(fuse_req_t, const fuse_file_info*)
    int fuse_reply_write(fuse_req_t, size_t)
    int fuse_reply_buf(fuse_req_t, const char*, size_t)
    int fuse_reply_iov(fuse_req_t, const iovec*, int)
    int fuse_reply_statfs(fuse_req_t, const statvfs_t*)
    int fuse_reply_ioctl(fuse_req_t, int, const void*, size_t)
    int fuse_reply_lseek(fuse_req_t, off_t)
    size_t fuse_add_direntry(fuse_req_t, char*, size_t, const char*, const struct_stat*, off_t)

    int fuse_opt_add_arg(fuse_args*, const char*)
    void fuse_opt_free_args(fuse_args*)
    fuse_session* fuse_session_new(fuse_args*, const fuse_lowlevel_ops*, size_t, void*)
    int fuse_lowlevel_notify_inval_inode(fuse_session*, fuse_ino_t, off_t, off_t)
    int fuse_session_mount(fuse_session*, const char*)
    void fuse_session_unmount(fuse_session*)
    void fuse_session_destroy(fuse_session*)
    void fuse_session_exit(fuse_session*)
    int fuse_session_exited(fuse_session*)
    int fuse_session_fd(fuse_session*)
    int fuse_session_receive_buf(fuse_session*, fuse_buf*)
    void fuse_session_process_buf(fuse_session*, const fuse_buf*)
