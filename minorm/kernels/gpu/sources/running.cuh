// Updates running statistics in the kernel that has the batch's statistics: running = running * keep + batch * share.
//
// A batch is left out for all rows if one of its statistics is not finite, or if a running value would not fit its
// type. `update_all` checks this, and then updates all rows or no row. It runs after the launch that wrote the
// statistics of all rows, or in the part of a grid that finishes its row last (`finish`).
#include "types.cuh"

__device__ inline bool is_finite(double v) { return v - v == 0; }

// R is the type they are stored in. A null `mean` means that there are no running statistics.
template <class R> struct Running {
    R *mean, *var;
    long long *batches, *skipped;   // counted up by one; may be null
    unsigned* ticket;               // 0 between launches; null: every batch is blended in
    double keep, share, share_var;  // share_var is share, or share * n / (n - 1) for the unbiased variance

    __device__ static double blended(R old, double kept, double batch, double part) {
        return widen<double>(old) * kept + batch * part;
    }
    template <class I> __device__ void blend(I row, double batch_mean, double batch_var) const {
        place(mean[row], blended(mean[row], keep, batch_mean, share));
        place(var[row], blended(var[row], keep, batch_var, share_var));
    }
    __device__ static bool fits(R old, double value) {
        R stored;
        place(stored, value);
        return is_finite(widen<double>(stored)) || !is_finite(widen<double>(old));
    }
    template <class I> __device__ bool takes(I row, double batch_mean, double batch_var) const {
        return is_finite(batch_mean) && is_finite(batch_var) &&
               fits(mean[row], blended(mean[row], keep, batch_mean, share)) &&
               fits(var[row], blended(var[row], keep, batch_var, share_var));
    }

    // Updates one row with known statistics, for kernels that leave no batch out.
    template <class I> __device__ void update(I row, double batch_mean, double batch_var) const {
        if (!mean || ticket) return;
        blend(row, batch_mean, batch_var);
        if (row == 0 && batches) *batches += 1;
    }

    // Updates all rows, by a warp or a block.
    template <bool WARP, class I> __device__ void update_all(const double* stats, I rows, int lane, int size) const {
        const volatile double* found = stats;  // other multiprocessors wrote it: do not read it from this one's cache
        double refused = 0;
        for (I row = lane; row < rows && ticket; row += size)
            if (!takes(row, found[row] + found[rows + row], found[2 * rows + row])) refused = 1;
        refused = row_sum<WARP>(refused);
        for (I row = lane; row < rows && refused == 0; row += size)
            blend(row, found[row] + found[rows + row], found[2 * rows + row]);
        if (lane > 0) return;
        long long* counter = refused == 0 ? batches : skipped;
        if (counter) *counter += 1;
    }

    // Does the same in the warp or block whose thread was the last to write a row's statistics. wrote: did this thread
    // write?
    template <bool WARP, class I>
    __device__ void finish(const double* stats, I rows, bool wrote, int lane, int size) const {
        if (!mean || !ticket) return;
        double last = 0;
        if (wrote) {
            __threadfence();
            last = atomicAdd(ticket, 1u) == (unsigned)rows - 1;
        }
        if (row_sum<WARP>(last) == 0) return;
        __threadfence();
        update_all<WARP>(stats, rows, lane, size);
        if (lane == 0) *ticket = 0;
    }
};
