// Running statistics, updated by the kernel that has the statistics of the batch: running = running * keep + batch * share.
//
// R is the type they are stored in. A null `mean` means that nobody keeps any.

template <class R> struct Running {
    R *mean, *var;
    long long* batches;            // counted up by one; may be null
    double keep, share, share_var;  // share_var is share, or share * n / (n - 1) for the unbiased variance

    template <class I> __device__ void update(I row, double batch_mean, double batch_var) const {
        if (!mean) return;
        place(mean[row], widen<double>(mean[row]) * keep + batch_mean * share);
        place(var[row], widen<double>(var[row]) * keep + batch_var * share_var);
        if (row == 0 && batches) *batches += 1;
    }
};
