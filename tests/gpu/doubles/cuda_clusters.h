// Clusters, memory whose size the launch gives, and copies in the background: cluster.cuh for the fibers of
// cuda_shim.h.
//
// All blocks of a cluster are under way together. One of them runs until all of its threads wait for the cluster, or
// have ended, then another one. __shared__ variables are the kernel's static memory, so each block's contents are
// brought there for the time that it runs. The memory of a block that has not begun or has ended is full of NaN. Copies
// happen only when a thread waits for them.

#define __cluster_dims__(...)
int cluster_rank();
void shim_cluster_arrive(int line);
void shim_cluster_wait(int line);
#define cluster_arrive() shim_cluster_arrive(__LINE__)
#define cluster_wait() shim_cluster_wait(__LINE__)
char* dynamic_shared();
void shim_copy(void* to, const void* from, int bytes);
void end_copies();
void wait_for_copies(int later);
template <int BYTES> void copy_async(void* to, const void* from) { shim_copy(to, from, BYTES); }

namespace shim {
const void* elsewhere(const void* here, int bytes, int rank);
int run_clusters(dim3 grid, int threads, unsigned seed, void (*call)(void*), void* kernel, int blocks, int dynamic,
                 char* statics, char* end);
}
inline double of_block(const double& here, int rank) {
    double value;
    std::memcpy(&value, shim::elsewhere(&here, sizeof value, rank), sizeof value);
    return value;
}

#ifndef SHIM_APART
namespace shim {
struct Copy { void* to; const void* from; int bytes; };
struct OfThread { int arrived = 0, waited = 0; std::vector<std::vector<Copy>> groups{1}; };
struct OfBlock {
    std::vector<Fiber> fibers;
    std::vector<OfThread> threads;
    std::vector<char> statics;
    char* dynamic;
    bool ended = false;
};
std::vector<OfBlock> cluster;
int rank, dynamic_bytes;
char *statics_begin, *statics_end;
bool broken;

void complain(const char* what, int line) {
    if (!broken) snprintf(message, sizeof message, "block %u, thread %d, line %d: %s", blockIdx.x, current, line, what);
    broken = true;
}

const void* elsewhere(const void* here, int bytes, int other) {
    const char* p = (const char*)here;
    OfBlock &mine = cluster[rank];
    if (other < 0 || other >= (int)cluster.size()) return complain("the cluster has no such block", 0), here;
    OfBlock& theirs = cluster[other];
    if (p >= mine.dynamic && p + bytes <= mine.dynamic + dynamic_bytes) return theirs.dynamic + (p - mine.dynamic);
    if (p < statics_begin || p + bytes > statics_end) return complain("this is not shared memory", 0), here;
    return other == rank ? p : theirs.statics.data() + (p - statics_begin);
}

void swap_in(int block) {
    rank = block;
    std::swap(fibers, cluster[block].fibers);
    std::copy(cluster[block].statics.begin(), cluster[block].statics.end(), statics_begin);
}
void swap_out(int block) {
    std::swap(fibers, cluster[block].fibers);
    std::copy(statics_begin, statics_end, cluster[block].statics.begin());
}

// Runs one cluster, whose first block has the number `first`.
int run_cluster(int first, int threads, dim3 grid) {
    const int blocks = cluster.size();
    std::vector<int> ready;
    for (;;) {
        ready.clear();
        for (int b = 0; b < blocks; b++)
            if (!cluster[b].ended) ready.push_back(b);
        if (ready.empty()) return 0;
        for (int i = (int)ready.size() - 1; i > 0; i--) std::swap(ready[i], ready[dice(i + 1)]);
        for (int b : ready) {
            block_index = first + b;
            blockIdx.x = block_index % grid.x; blockIdx.y = block_index / grid.x % grid.y;
            blockIdx.z = block_index / grid.x / grid.y;
            swap_in(b);
            for (Fiber& fiber : fibers) fiber.state = READY;
            const int result = continue_block(threads);
            OfBlock& block = cluster[b];
            block.ended = result == 0;
            for (Fiber& fiber : fibers) block.ended = block.ended && fiber.state == DONE;
            swap_out(b);
            if (result < 0 || broken) return -1;
            if (!block.ended) continue;
            std::fill(block.statics.begin(), block.statics.end(), 0xff);
            std::fill(block.dynamic, block.dynamic + dynamic_bytes, 0xff);
        }
    }
}

int run_clusters(dim3 grid, int threads, unsigned seed, void (*call)(void*), void* kernel, int blocks, int dynamic,
                 char* statics, char* end) {
    const int all = grid.x * grid.y * grid.z;
    char* const of_all = (char*)malloc(stack_bytes * threads * blocks);
    std::vector<char> memory((size_t)blocks * (dynamic + 128));
    body = call; argument = kernel; barriers = 0; message[0] = 0; broken = false; dynamic_bytes = dynamic;
    statics_begin = statics; statics_end = end;
    random_state = 88172645463325252ull + 2654435761ull * seed;
    for (int i = 0; i < 10; i++) dice(2);
    gridDim = grid; blockDim.x = threads;
    int result = 0;
    for (int first = 0; first < all && result == 0; first += blocks) {
        cluster.assign(blocks, OfBlock());
        for (int b = 0; b < blocks; b++) {
            OfBlock& block = cluster[b];
            block.threads.resize(threads);
            block.statics.assign(end - statics, (char)0xff);
            block.dynamic = (char*)(((size_t)memory.data() + 64 + (size_t)b * (dynamic + 128)) / 16 * 16);
            std::fill(block.dynamic, block.dynamic + dynamic, 0xff);
            stacks = of_all + (size_t)b * threads * stack_bytes;
            begin_block(threads);
            std::swap(fibers, block.fibers);
        }
        result = run_cluster(first, threads, grid);
    }
    free(of_all);
    return result < 0 ? -1 : barriers;
}
}

int cluster_rank() { return shim::rank; }
char* dynamic_shared() { return shim::cluster[shim::rank].dynamic; }
void shim_cluster_arrive(int line) {
    shim::OfThread& thread = shim::cluster[shim::rank].threads[shim::current];
    if (thread.arrived > thread.waited) shim::complain("it arrives at a barrier of the cluster for which it must wait", line);
    thread.arrived++;
}
void shim_cluster_wait(int line) {
    shim::OfThread& thread = shim::cluster[shim::rank].threads[shim::current];
    if (thread.arrived == thread.waited) shim::complain("it waits for a barrier of the cluster without arriving", line);
    thread.waited++;
    shim::wait(shim::BLOCK, -line);
}
void shim_copy(void* to, const void* from, int bytes) {
    shim::cluster[shim::rank].threads[shim::current].groups.back().push_back({to, from, bytes});
}
void end_copies() { shim::cluster[shim::rank].threads[shim::current].groups.emplace_back(); }
void wait_for_copies(int later) {
    auto& groups = shim::cluster[shim::rank].threads[shim::current].groups;
    for (int g = 0; g < (int)groups.size() - 1 - later; g++) {
        for (shim::Copy& copy : groups[g]) std::memcpy(copy.to, copy.from, copy.bytes);
        groups[g].clear();
    }
}
#endif
