/* Memory from the system for the pool of memory.pyx. A region is address space; only its touched pages are resident. */
#ifndef MINORM_REGIONS_H
#define MINORM_REGIONS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define MINORM_HUGE ((size_t)2 << 20) /* one huge page: the alignment and the unit of regions */

/* Map a region of this many bytes, or return NULL. */
static void *minorm_map(size_t bytes) {
    char *start = mmap(NULL, bytes + MINORM_HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return NULL;
    size_t head = (size_t)(-(uintptr_t)start) & (MINORM_HUGE - 1); /* cut both ends off: what is left is aligned */
    if (head) munmap(start, head);
    munmap(start + head + bytes, MINORM_HUGE - head);
#ifdef MADV_HUGEPAGE
    madvise(start + head, bytes, MADV_HUGEPAGE); /* advice: without huge pages everything still works */
#endif
    return start + head;
}

static void minorm_unmap(void *region, size_t bytes) { munmap(region, bytes); }

/* Give the pages within this part of a region back to the system; their addresses stay mapped. */
static void minorm_discard(char *data, size_t bytes) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t start = ((uintptr_t)data + page - 1) & -page, end = ((uintptr_t)data + bytes) & -page;
    if (start < end) madvise((void *)start, end - start, MADV_DONTNEED);
}

/* The size of a region: a gigabyte, or an eighth of a bounded address space if that is less. */
static size_t minorm_region(void) {
    struct rlimit limit;
    size_t bytes = (size_t)1 << 30;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur / 8 < bytes)
        bytes = limit.rlim_cur / 8;
    return bytes & -MINORM_HUGE;
}

#endif
