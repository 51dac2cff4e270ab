// The instructions that kernels of clusters need: those of NVIDIA's compute capability 9.0.
//
// A cluster is up to eight blocks that run at the same time. A thread can read the shared memory of every block of its
// cluster. A kernel has clusters of BLOCKS blocks if it is declared with __cluster_dims__(BLOCKS, 1, 1).
//
// Copies from global to shared memory go on by themselves: a thread starts many of them and needs no register for any.
// It ends a group of copies by end_copies, and waits until at most `later` of its groups are under way. Then it sees
// its own copies. Other threads see them after a barrier.
//
// Tests run kernels on a CPU, with functions of the same names in tests/gpu/doubles/cuda_clusters.h.
#include "types.cuh"
#ifdef __CUDA_ARCH__

__device__ inline unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

// The memory whose size the launch gives; it begins at a multiple of 16 bytes.
__device__ inline char* dynamic_shared() {
    extern __shared__ uint4 of_the_launch[];
    return reinterpret_cast<char*>(of_the_launch);
}

// The number of this block in its cluster.
__device__ inline int cluster_rank() {
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// A barrier of all threads of a cluster in two halves. After cluster_wait a thread sees what every thread of the
// cluster wrote before its cluster_arrive.
__device__ inline void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }

// Reads the variable of another block that lies where `here` lies in this block's shared memory.
__device__ inline double of_block(const double& here, int rank) {
    unsigned there;
    double value;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(&here)), "r"(rank));
    asm volatile("ld.shared::cluster.f64 %0, [%1];" : "=d"(value) : "r"(there) : "memory");
    return value;
}

template <int BYTES> __device__ inline void copy_async(void* to, const void* from) {
    if (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(to)), "l"(from), "n"(BYTES) : "memory");
}
__device__ inline void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
__device__ inline void wait_for_copies(int later) {
    switch (later) {  // the instruction takes a constant
        case 0: asm volatile("cp.async.wait_group 0;" ::: "memory"); break;
        case 1: asm volatile("cp.async.wait_group 1;" ::: "memory"); break;
        case 2: asm volatile("cp.async.wait_group 2;" ::: "memory"); break;
        default: asm volatile("cp.async.wait_group 3;" ::: "memory");
    }
}

#endif
