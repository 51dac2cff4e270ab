// The windows of a pooling or a convolution along three axes, packed by plans/window_struct.py: tap k of window o reads
// the place o * s - low + k * d of an axis. Taps outside of [0, n) read nothing.
struct Axis {
    int n, o, k, s, low, high, d;  // length, windows, taps, stride, padding before and after, dilation

    // Of window i, the taps first .. last - 1 are inside.
    __device__ int start(int i) const { return i * s - low; }
    __device__ int first(int start) const { return start >= 0 ? 0 : (d - 1 - start) / d; }
    __device__ int last(int start, int end) const { return start >= end ? 0 : min(k, (end - 1 - start) / d + 1); }

    // The windows begin .. end - 1 cover place p; with dilation some of them step over it.
    __device__ int begin(int p) const {
        const int reach = p + low - (k - 1) * d;
        return reach <= 0 ? 0 : (reach + s - 1) / s;
    }
    __device__ int end(int p) const { return p + low < 0 ? 0 : min(o, (p + low) / s + 1); }
    __device__ int tap(int p, int i) const {  // the tap with which window i reads p, or -1
        const int at = p - start(i);
        return at % d ? -1 : at / d;
    }

    // Returns the number of places that an average along this axis counts.
    __device__ int count(int start, bool padding) const {
        return padding ? last(start, n + high) : max(0, last(start, n) - first(start));
    }
};

struct Windows {
    Axis axis[3];
    int plane, results, taps;  // the products over the axes of n, of o, of k

    // Splits a number less than `plane` (PLACES) or `results` into its three digits.
    template <bool PLACES> __device__ void digits(int number, int* digit) const {
        for (int a = 2; a > 0; a--) {
            const int base = PLACES ? axis[a].n : axis[a].o, rest = number / base;
            digit[a] = number - rest * base;
            number = rest;
        }
        digit[0] = number;
    }
};
