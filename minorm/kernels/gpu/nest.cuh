// The four loops of a normalization (minorm/nest.py), as a kernel gets them: by value, with indices of type I.

template <class I> struct Loop { I count, data, param; };  // how often; elements apart in the data, in scale and bias

template <class I> struct Nest {
    Loop<I> keep[2], reduce[2];  // outer, inner

    // Row r of the statistics is one turn of the kept loops.
    __device__ I row_data(I r) const { return r / keep[1].count * keep[0].data + r % keep[1].count * keep[1].data; }
    __device__ I row_param(I r) const { return r / keep[1].count * keep[0].param + r % keep[1].count * keep[1].param; }

    // Column c is one turn of the reduced loops.
    __device__ I columns() const { return reduce[0].count * reduce[1].count; }
    __device__ I column_data(I c) const {
        if (reduce[0].count == 1) return c * reduce[1].data;
        return c / reduce[1].count * reduce[0].data + c % reduce[1].count * reduce[1].data;
    }
    __device__ I column_param(I c) const {
        if (reduce[0].count == 1) return c * reduce[1].param;
        return c / reduce[1].count * reduce[0].param + c % reduce[1].count * reduce[1].param;
    }
};
