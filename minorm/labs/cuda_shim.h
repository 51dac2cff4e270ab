// CUDA for g++: a block's threads are fibers. Each runs up to its next barrier or shuffle; a seed decides their order.
// This header has what kernels of one-dimensional blocks use; minorm/labs/cuda.py tells more. SHIM_APART leaves out the
// second half, which no kernel needs to see: it is compiled once, for all kernels.

#include <ucontext.h>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define SHIM_UNCOUNTED __attribute__((no_sanitize("thread")))  // where cuda_work.h counts what kernels do
#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __syncthreads() shim::wait(shim::BLOCK, __LINE__)
#define __syncwarp(...) shim::wait(shim::WARP, __LINE__)
#define SHIM_EXCHANGE shim::exchange  // cuda_work.h puts one that counts in its place
#define __shfl_sync(mask, v, lane) SHIM_EXCHANGE(v, (lane) % 32, __LINE__)
#define __shfl_down_sync(mask, v, delta) SHIM_EXCHANGE(v, shim::lane() + (delta), __LINE__)
#define __shfl_up_sync(mask, v, delta) SHIM_EXCHANGE(v, shim::lane() - (int)(delta), __LINE__)
#define __shfl_xor_sync(mask, v, other) SHIM_EXCHANGE(v, shim::lane() ^ (other), __LINE__)

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
extern dim3 threadIdx, blockIdx, blockDim, gridDim;
const int warpSize = 32;
using std::min; using std::max;
inline float rsqrtf(float v) { return 1.0f / std::sqrt(v); }
template <class T> T __ldg(const T* p) { return *p; }
template <class T> T atomicAdd(T* p, T v) { T old = *p; *p += v; return old; }

namespace shim {
enum State { READY, BLOCK, WARP, DONE };
struct Fiber { ucontext_t context; State state; int line; double slot; int passed[3]; };  // passed: waits of each kind
extern std::vector<Fiber> fibers;
extern int current, block_index;
extern bool inside;  // is a kernel running, and not the scheduler?
extern char* stacks;
const size_t stack_bytes = 64 << 10;
extern unsigned long long random_state;

SHIM_UNCOUNTED inline int lane() { return current % 32; }
void wait(State state, int line);

template <class T> SHIM_UNCOUNTED T exchange(T v, int from, int line) {
    int mine = current, source = mine / 32 * 32 + from;
    static_assert(sizeof(T) <= sizeof(double), "shuffles carry 4 or 8 bytes");
    std::memcpy(&fibers[mine].slot, &v, sizeof v);
    wait(WARP, line);
    if (from >= 0 && from < 32 && source < (int)fibers.size()) std::memcpy(&v, &fibers[source].slot, sizeof v);
    wait(WARP, line);
    return v;
}

int run_blocks(dim3 grid, int threads, unsigned seed, void (*call)(void*), void* kernel);

template <class Kernel> SHIM_UNCOUNTED int run(dim3 grid, int threads, unsigned seed, Kernel& kernel) {
    return run_blocks(grid, threads, seed, [](void* k) { (*static_cast<Kernel*>(k))(); }, &kernel);
}
}

#ifndef SHIM_APART
dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace shim {
std::vector<Fiber> fibers;
ucontext_t scheduler;
void (*body)(void*);
void* argument;
int current, barriers, block_index;
bool inside;
char* stacks;
char message[300];
unsigned long long random_state;

unsigned dice(unsigned n) {  // xorshift
    random_state ^= random_state << 13; random_state ^= random_state >> 7; random_state ^= random_state << 17;
    return (random_state >> 11) % n;
}

__attribute__((noinline)) void wait(State state, int line) {
    int mine = current;
    fibers[mine].state = state; fibers[mine].line = line;
    swapcontext(&fibers[mine].context, &scheduler);
    fibers[mine].passed[state]++;
}

void enter() { body(argument); fibers[current].state = DONE; }

bool together(int first, int last, State state) {  // do all of these wait at the same line?
    for (int t = first; t < last; t++)
        if (fibers[t].state != state || fibers[t].line != fibers[first].line) return false;
    return true;
}

int stuck() {
    int waiting = -1, other = -1, n = fibers.size();
    for (int t = 0; t < n; t++) if (fibers[t].state == WARP || fibers[t].state == BLOCK) { waiting = t; break; }
    bool warp = fibers[waiting].state == WARP;
    for (int t = 0; t < n; t++)
        if ((!warp || t / 32 == waiting / 32) &&
            (fibers[t].state != fibers[waiting].state || fibers[t].line != fibers[waiting].line)) { other = t; break; }
    int used = snprintf(message, sizeof message, "block %u: thread %d waits at line %d, which thread %d will not reach: ",
                        blockIdx.x, waiting, fibers[waiting].line, other);
    if (fibers[other].state == DONE) snprintf(message + used, sizeof message - used, "it has ended");
    else snprintf(message + used, sizeof message - used, "it waits at line %d", fibers[other].line);
    return -1;
}

void begin_block(int threads) {
    fibers.assign(threads, Fiber());
    for (int t = 0; t < threads; t++) {
        getcontext(&fibers[t].context);
        fibers[t].context.uc_stack.ss_sp = stacks + t * stack_bytes;
        fibers[t].context.uc_stack.ss_size = stack_bytes;
        fibers[t].context.uc_link = &scheduler;
        fibers[t].state = READY;
        makecontext(&fibers[t].context, enter, 0);
    }
}

// Runs the threads until all have ended or all wait for other blocks, which a negative line tells.
int continue_block(int threads) {
    std::vector<int> order;
    int ahead = -1, warps = (threads + 31) / 32;  // mostly one warp runs as far ahead as it can, then another
    for (;;) {
        order.clear();
        for (int t = 0; t < threads; t++)
            if (fibers[t].state == READY && (ahead < 0 || t / 32 == ahead)) order.push_back(t);
        if (order.empty() || ahead < 0) ahead = dice(4) > 0 ? dice(warps) : -1;
        if (order.empty()) continue;
        for (int i = (int)order.size() - 1; i > 0; i--) std::swap(order[i], order[dice(i + 1)]);
        for (int t : order) {
            current = t; threadIdx.x = t;
            inside = true;
            swapcontext(&scheduler, &fibers[t].context);
            inside = false;
        }
        bool released = false, ended = true;  // or can some go on without any release?
        for (int t = 0; t < threads; t++) {
            ended = ended && fibers[t].state == DONE;
            released = released || fibers[t].state == READY;
        }
        if (ended) return 0;
        for (int t = 0; t < threads; t += 32) {
            int last = std::min(t + 32, threads);
            if (!together(t, last, WARP)) continue;
            for (int i = t; i < last; i++) fibers[i].state = READY;
            released = true;
        }
        if (!released && together(0, threads, BLOCK)) {
            if (fibers[0].line < 0) return 0;
            for (Fiber& fiber : fibers) fiber.state = READY;
            barriers++;
            released = true;
        }
        if (!released) return stuck();
    }
}

int run_blocks(dim3 grid, int threads, unsigned seed, void (*call)(void*), void* kernel) {
    const int blocks = grid.x * grid.y * grid.z;
    stacks = (char*)malloc(stack_bytes * threads);
    std::vector<int> order(blocks);
    body = call; argument = kernel; barriers = 0; message[0] = 0; random_state = 88172645463325252ull + 2654435761ull * seed;
    for (int i = 0; i < 10; i++) dice(2);
    for (int b = 0; b < blocks; b++) order[b] = b;
    for (int i = blocks - 1; i > 0; i--) std::swap(order[i], order[dice(i + 1)]);
    gridDim = grid; blockDim.x = threads;
    int result = 0;
    for (int b : order) {
        block_index = b;
        blockIdx.x = b % grid.x; blockIdx.y = b / grid.x % grid.y; blockIdx.z = b / grid.x / grid.y;
        begin_block(threads);
        if ((result = continue_block(threads)) < 0) break;
    }
    free(stacks);
    return result < 0 ? -1 : barriers;
}
}
extern "C" const char* shim_message() { return shim::message; }
#endif
