// Counts what each CUDA thread does, beside cuda_shim.h: the compiler calls __tsan_read4(p) before it loads 4 bytes
// from p (see sealed/compiler.py). What is no thread's own stack, no argument and no array that was passed is shared
// memory. Two threads that use one number of it, one of them to write, must have a barrier between: else it is a race.

#include <cstdint>

#undef SHIM_EXCHANGE
#define SHIM_EXCHANGE shim::shuffle
#define atomicAdd shim::add

namespace shim {
struct Work { int shared_reads, shared_writes, reads, writes, shuffles, atomics; };
extern Work* works;  // of each thread of each block; 0: nothing is counted
extern int changed_shuffle;

void access(const void* address, size_t size, bool write);
void begin(const void* kernel, size_t size);
void end();

SHIM_UNCOUNTED inline Work& mine() { return works[block_index * blockDim.x + current]; }

template <class T> SHIM_UNCOUNTED T shuffle(T v, int from, int line) {
    int place = works ? mine().shuffles++ : -1;
    T found = exchange(v, from, line);
    return place >= 0 && place == changed_shuffle ? found + 1 : found;
}

template <class T, class V> SHIM_UNCOUNTED T add(T* p, V v) {
    if (works) mine().atomics++;
    T old = *p;
    *p += v;
    return old;
}

SHIM_UNCOUNTED inline void* copy(void* to, const void* from, size_t size) {
    access(from, size, false);
    access(to, size, true);
    return std::memmove(to, from, size);
}

template <class Kernel> SHIM_UNCOUNTED int counted(dim3 grid, int threads, unsigned seed, Kernel kernel) {
    begin(&kernel, sizeof kernel);
    int result = run(grid, threads, seed, kernel);
    end();
    return result;
}
}

#define memcpy shim::copy
#define memmove shim::copy

#ifndef SHIM_APART  // compiled once, without -fsanitize=thread, as the second half of cuda_shim.h
namespace shim {
struct Array { uintptr_t first, end; };
struct Use { int thread = -1, block = 0, warp = 0; };  // by whom, behind how many barriers and waits of its warp
struct Number { uintptr_t place; int launch, block; Use write, reads[2]; };
const int MOST_NUMBERS = 1 << 14;  // of shared memory, a power of two: what a block of a GPU has at most

Work* works;
Array arrays[32];      // that were passed
int array_count, races, launches, changed_shuffle = -1;
char race[200];
uintptr_t arguments, arguments_end;
Number numbers[MOST_NUMBERS];  // of shared memory, by address

bool in(uintptr_t p, const void* object, size_t size) { return p - (uintptr_t)object < size; }

bool before(const Use& use, const Use& now) {
    return use.thread < 0 || use.thread == now.thread || use.block < now.block ||
           (use.thread / 32 == now.thread / 32 && use.warp < now.warp);
}

void look(const Use& use, const Use& now) {
    if (before(use, now)) return;
    if (!races++)
        snprintf(race, sizeof race, "thread %d and thread %d of block %d use the same number in shared memory, one of "
                 "them to write, with no barrier between", use.thread, now.thread, block_index);
}

void use_shared(uintptr_t p, bool write) {
    Number* found = 0;
    for (int i = 0; i < MOST_NUMBERS; i++) {
        found = &numbers[(p / 4 + i) % MOST_NUMBERS];
        if (found->launch != launches || found->block != block_index) *found = {p / 4, launches, block_index};
        if (found->place == p / 4) break;
    }
    Number& number = *found;
    Use now;
    now.thread = current; now.block = fibers[current].passed[BLOCK]; now.warp = fibers[current].passed[WARP];
    look(number.write, now);
    if (!write) {
        if (number.reads[0].thread != current) number.reads[1] = number.reads[0];
        number.reads[0] = now;
        return;
    }
    look(number.reads[0], now); look(number.reads[1], now);
    number.reads[0] = number.reads[1] = Use();
    number.write = now;
}

void access(const void* address, size_t size, bool write) {
    uintptr_t p = (uintptr_t)address;
    if (!works || !inside || in(p, stacks + current * stack_bytes, stack_bytes)) return;
    if (p >= arguments && p < arguments_end) return;
    if (in(p, &threadIdx, sizeof(dim3)) || in(p, &blockIdx, sizeof(dim3)) || in(p, &blockDim, sizeof(dim3)) ||
        in(p, &gridDim, sizeof(dim3)) || in(p, &fibers, sizeof fibers) || in(p, &current, sizeof current)) return;
    int count = (size + 3) / 4;
    for (int i = 0; i < array_count; i++)
        if (p >= arrays[i].first && p < arrays[i].end) { (write ? mine().writes : mine().reads) += count; return; }
    (write ? mine().shared_writes : mine().shared_reads) += count;
    for (size_t at = 0; at < size; at += 4) use_shared(p + at, write);
}

inline void on_read(const void* p, size_t size) { access(p, size, false); }
inline void on_write(const void* p, size_t size) { access(p, size, true); }

void begin(const void* kernel, size_t size) {
    arguments = (uintptr_t)kernel; arguments_end = arguments + size;
    launches++; races = 0; race[0] = 0;
}

void end() { works = 0; array_count = 0; changed_shuffle = -1; }
}

extern "C" {
void shim_count(shim::Work* rows, int shuffle) { shim::works = rows; shim::changed_shuffle = shuffle; }
void shim_array(uintptr_t first, uintptr_t bytes) {
    if (shim::array_count < 32) shim::arrays[shim::array_count++] = {first, first + bytes};
}
const char* shim_race() { return shim::race; }

void __tsan_write_range(void* p, size_t size) { shim::on_write(p, size); }
void __tsan_vptr_read(void**) {}
void __tsan_vptr_update(void**, void*) {}
}
#endif
