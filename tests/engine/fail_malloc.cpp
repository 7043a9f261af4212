// Preloaded into a Python process: of the allocations that compiled modules of ours ask for, the n-th from fail_arm(n)
// on fails. Everybody else's go through, the interpreter's too: it has its own way to be tested (_testcapi).
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <link.h>
#include <new>
#include <cstdarg>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}

struct Range {
    char* first;
    char* end;
};
static Range ours[256];
static int ours_n = 0;
static long due = 0, calls = 0;
static bool armed = false;

static int note(struct dl_phdr_info* info, size_t, void*) {
    if (!strstr(info->dlpi_name, "/flashfs/") && !strstr(info->dlpi_name, "/nandimg/")) return 0;
    if (!strstr(info->dlpi_name, ".so")) return 0;
    for (int i = 0; i < info->dlpi_phnum && ours_n < 256; i++) {
        const ElfW(Phdr)& part = info->dlpi_phdr[i];
        if (part.p_type == PT_LOAD && part.p_flags & PF_X) {
            char* at = (char*)info->dlpi_addr + part.p_vaddr;
            ours[ours_n++] = {at, at + part.p_memsz};
        }
    }
    return 0;
}

static bool fails(void* caller) {
    if (!armed) return false;
    for (int i = 0; i < ours_n; i++)
        if (caller >= ours[i].first && caller < ours[i].end) {
            calls++;
            return calls == due;
        }
    return false;
}

extern "C" {
int fail_arm(long n) {
    ours_n = 0;
    dl_iterate_phdr(note, nullptr);
    calls = 0;
    due = n;
    armed = true;
    return ours_n;
}

long fail_disarm(void) {
    armed = false;
    return calls;
}

void* malloc(size_t n) {
    if (fails(__builtin_return_address(0))) {
        errno = ENOMEM;
        return nullptr;
    }
    return __libc_malloc(n);
}

void* calloc(size_t n, size_t size) {
    if (fails(__builtin_return_address(0))) {
        errno = ENOMEM;
        return nullptr;
    }
    return __libc_calloc(n, size);
}

void* realloc(void* at, size_t n) {
    if (fails(__builtin_return_address(0))) {
        errno = ENOMEM;
        return nullptr;
    }
    return __libc_realloc(at, n);
}

int posix_memalign(void** at, size_t alignment, size_t n) {
    if (fails(__builtin_return_address(0))) return ENOMEM;
    *at = __libc_memalign(alignment, n);
    return *at == nullptr ? ENOMEM : 0;
}

void* mmap(void* at, size_t n, int protection, int flags, int fd, off_t offset) {
    if (fails(__builtin_return_address(0))) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return (void*)syscall(SYS_mmap, at, n, protection, flags, fd, offset);
}

void* mremap(void* at, size_t n, size_t wanted, int flags, ...) {
    if (fails(__builtin_return_address(0))) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return (void*)syscall(SYS_mremap, at, n, wanted, flags);
}
}

void* operator new(size_t n) {
    void* at = fails(__builtin_return_address(0)) ? nullptr : __libc_malloc(n ? n : 1);
    if (at == nullptr) throw std::bad_alloc();
    return at;
}
