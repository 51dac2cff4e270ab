// Counts what each thread of a Cython kernel reads and writes. It is linked to a kernel that was compiled with
// -fsanitize=thread, but without that library: the compiler then calls __tsan_read4(p) before it loads 4 bytes from p.
//
// While counts are taken, the kernel's array holds zeros. An element gets its value when a counted read is about to
// load it, and loses it some reads later. So a read that the compiler does not announce (assembler, memcpy, NumPy)
// finds zeros, and a right result proves that the counted reads have made it.
//
// Threads wait for each other before their first element, and pause after every BLOCK elements. Thus they share the
// work also where one processor runs them all; and a thread that holds a lock is seen, for no other reads meanwhile.

#include <stdint.h>
#include <string.h>
#include <time.h>

#define UNCOUNTED __attribute__((no_sanitize("thread")))
#define MOST 64      // threads
#define BLOCK 1024   // elements between two pauses
#define OPEN 64      // elements of each thread that keep their values
#define LOCKS 256
#define NEAR (256 << 10)  // bytes around a frame that are the thread's own stack

// read: elements of the array; loads: of any memory; places: to which it wrote, beside its stack; pauses, and how many
// of them in which others read
typedef struct { int64_t read, loads, places, pauses, shared; } Row;
typedef struct { Row row; int64_t opened[OPEN]; uintptr_t written[256]; } Thread;

static Thread threads[MOST];
static int running, used, expected, arrived;
static double patience;
static unsigned round_now;
static int64_t blocks, elements;
static float* shown;
static const float* hidden;
static uint8_t* holders;  // how many threads keep an element open
static int locks[LOCKS];
static __thread Thread* mine;
static __thread unsigned mine_in;

UNCOUNTED static void rest(long microseconds) {
    struct timespec time = {0, microseconds * 1000};
    nanosleep(&time, 0);
}

UNCOUNTED static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}

UNCOUNTED static void hold(int64_t i, int more) {
    int* lock = &locks[i % LOCKS];
    while (__atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE)) rest(1);
    holders[i] += more;
    shown[i] = holders[i] ? hidden[i] : 0;
    __atomic_store_n(lock, 0, __ATOMIC_RELEASE);
}

UNCOUNTED static Thread* me(void) {
    if (mine_in != round_now) {
        int place = __atomic_fetch_add(&used, 1, __ATOMIC_RELAXED);
        mine = &threads[place < MOST ? place : MOST - 1];
        mine_in = round_now;
    }
    return mine;
}

UNCOUNTED static void meet(void) {  // wait until all threads are at their first element, or for some time
    __atomic_fetch_add(&arrived, 1, __ATOMIC_SEQ_CST);
    for (double until = now() + patience; now() < until; rest(100))
        if (__atomic_load_n(&arrived, __ATOMIC_SEQ_CST) >= expected) return;
    __atomic_store_n(&arrived, MOST, __ATOMIC_SEQ_CST);  // nobody waits any more
}

UNCOUNTED static void pause_now(Thread* t) {
    int64_t before = __atomic_add_fetch(&blocks, 1, __ATOMIC_SEQ_CST);
    rest(50);
    t->row.pauses++;
    t->row.shared += __atomic_load_n(&blocks, __ATOMIC_SEQ_CST) != before;
}

UNCOUNTED static void on_read(const volatile void* address, int64_t size) {
    if (!running) return;
    uintptr_t p = (uintptr_t)address;
    Thread* t = me();
    t->row.loads += (size + 3) / 4;
    uintptr_t first = (uintptr_t)shown, end = first + 4 * elements;
    if (p + size <= first || p >= end) return;
    if (!t->row.read) meet();
    for (int64_t i = p < first ? 0 : (p - first) / 4; i < elements && first + 4 * i < p + size; i++) {
        int place = t->row.read++ % OPEN;
        if (t->opened[place] >= 0) hold(t->opened[place], -1);
        hold(t->opened[place] = i, 1);
        if (t->row.read % BLOCK == 0) pause_now(t);
    }
}

UNCOUNTED static void on_write(const volatile void* address, int64_t size) {  // one place, of any size
    if (!running) return;
    uintptr_t p = (uintptr_t)address, frame = (uintptr_t)__builtin_frame_address(0);
    if (p + NEAR > frame && p < frame + NEAR) return;
    Thread* t = me();
    uintptr_t* last = &t->written[p / 4 % 256];
    t->row.places += *last != p;
    *last = p;
}

// array: n zeros that the kernel gets; values: what it should find there; opened: n bytes, all 0
UNCOUNTED void counts_begin(float* array, const float* values, uint8_t* opened, int64_t n, int asked, double seconds) {
    memset(threads, 0, sizeof threads);
    for (int t = 0; t < MOST; t++) memset(threads[t].opened, -1, sizeof threads[t].opened);
    used = arrived = 0; blocks = 0;
    round_now++;
    shown = array; hidden = values; holders = opened; elements = n; expected = asked; patience = seconds;
    __atomic_store_n(&running, 1, __ATOMIC_SEQ_CST);
}

UNCOUNTED void counts_end(int64_t* rows) {
    running = 0;
    for (int t = 0; t < MOST; t++) memcpy(rows + 5 * t, &threads[t].row, sizeof(Row));
}

#include "announced.h"
UNCOUNTED void __tsan_write_range(void* p, size_t size) {
    for (size_t i = 0; i < size; i += 4) on_write((char*)p + i, 4);
}
UNCOUNTED void __tsan_vptr_read(void** p) { on_read(p, sizeof *p); }
UNCOUNTED void __tsan_vptr_update(void** p, void* v) { (void)v; on_write(p, sizeof *p); }

// Atomic operations, which OpenMP's reductions need: done as they are asked for, and counted as one read.
#define SEQ __ATOMIC_SEQ_CST
#define CHANGING(bits, type, name) \
    UNCOUNTED type __tsan_atomic##bits##_fetch_##name(volatile type* p, type v, int order) { \
        on_read(p, sizeof *p); \
        return __atomic_fetch_##name(p, v, SEQ); \
    }
#define ATOMIC(bits, type) \
    UNCOUNTED type __tsan_atomic##bits##_load(const volatile type* p, int order) { \
        on_read(p, sizeof *p); \
        return __atomic_load_n(p, SEQ); \
    } \
    UNCOUNTED void __tsan_atomic##bits##_store(volatile type* p, type v, int order) { __atomic_store_n(p, v, SEQ); } \
    UNCOUNTED type __tsan_atomic##bits##_exchange(volatile type* p, type v, int order) { \
        on_read(p, sizeof *p); \
        return __atomic_exchange_n(p, v, SEQ); \
    } \
    UNCOUNTED int __tsan_atomic##bits##_compare_exchange_strong(volatile type* p, type* c, type v, int a, int b) { \
        on_read(p, sizeof *p); \
        return __atomic_compare_exchange_n(p, c, v, 0, SEQ, SEQ); \
    } \
    UNCOUNTED int __tsan_atomic##bits##_compare_exchange_weak(volatile type* p, type* c, type v, int a, int b) { \
        return __tsan_atomic##bits##_compare_exchange_strong(p, c, v, a, b); \
    } \
    CHANGING(bits, type, add) CHANGING(bits, type, sub) CHANGING(bits, type, and) CHANGING(bits, type, or) \
    CHANGING(bits, type, xor) CHANGING(bits, type, nand)
ATOMIC(8, uint8_t)
ATOMIC(16, uint16_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)
UNCOUNTED void __tsan_atomic_thread_fence(int order) { __atomic_thread_fence(SEQ); }
UNCOUNTED void __tsan_atomic_signal_fence(int order) { __atomic_signal_fence(SEQ); }
