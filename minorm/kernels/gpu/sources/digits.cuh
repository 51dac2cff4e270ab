// Takes the number of the innermost loop's turn off `number`, which counts the turns of all loops together; the outermost
// loop gets what is left. A division is the most expensive step, so a small number is not divided.
template <class I> __device__ __forceinline__ I take_digit(I& number, I count, bool outermost) {
    I digit = number;
    if (!outermost && number >= count) {
        number /= count;
        digit -= number * count;
    } else {
        number = 0;
    }
    return digit;
}
