/* Every operation in one line: its result, computed from a, b, option, and y, the number that the output had at this
 * place. Gradients take dy as a, and as b the x or y that forward kept. HEAVY operations have an exponential: a second
 * thread pays much earlier. operations.h makes loops and a table of them, for float and for double. */

OPERATION(add, LIGHT, a + b)
OPERATION(sub, LIGHT, a - b)
OPERATION(mul, LIGHT, a * b)
OPERATION(div, LIGHT, a / b)
OPERATION(copy, LIGHT, a)
OPERATION(scale, LIGHT, a * option)
OPERATION(accumulate, LIGHT, y + a)
OPERATION(relu, LIGHT, a <= 0 ? 0 : a)
OPERATION(relu_grad, LIGHT, b <= 0 ? 0 : a)
OPERATION(relu6, LIGHT, a < 0 ? 0 : a > 6 ? 6 : a) /* NaN is neither */
OPERATION(relu6_grad, LIGHT, b >= 6 ? 0 : b <= 0 ? 0 : a) /* so it keeps its gradient */
OPERATION(leaky_relu, LIGHT, a > 0 ? a : a * option)
OPERATION(leaky_relu_grad, LIGHT, b > 0 ? a : a * option)
OPERATION(hardswish, LIGHT, a * (a + 3 < 0 ? 0 : a + 3 > 6 ? 6 : a + 3) / 6)
OPERATION(hardswish_grad, LIGHT, b <= -3 ? 0 : b < 3 ? a * (b / 3 + (REAL)0.5) : a)
OPERATION(sigmoid, HEAVY, NAME(sigmoid)(a))
OPERATION(sigmoid_grad, LIGHT, a * b * (1 - b))
OPERATION(tanh, HEAVY, NAME(tanh)(a))
OPERATION(tanh_grad, LIGHT, a * (1 - b * b))
OPERATION(silu, HEAVY, a * NAME(sigmoid)(a))
OPERATION(silu_grad, HEAVY, a * NAME(silu_slope)(b))
OPERATION(elu, HEAVY, a > 0 ? a : option * NAME(expm1_up_to_40)(a > 0 ? 0 : a))
OPERATION(elu_grad, HEAVY, b <= 0 ? a * (option * NAME(exp)(b > 0 ? 0 : b)) : a)
OPERATION(gelu, HEAVY, NAME(gelu)(a))
OPERATION(gelu_grad, HEAVY, a * NAME(gelu_slope)(b))
OPERATION(gelu_tanh, HEAVY, a * NAME(gelu_share)(a))
OPERATION(gelu_tanh_grad, HEAVY, a * NAME(gelu_tanh_slope)(b))
OPERATION(erf, HEAVY, NAME(erf)(a))
OPERATION(erf_grad, HEAVY, a * NAME(erf_slope)(b))
OPERATION(exp, HEAVY, NAME(exp)(a))
OPERATION(expm1, HEAVY, NAME(expm1)(a))
OPERATION(log, HEAVY, NAME(log)(a))
OPERATION(log1p, HEAVY, NAME(log1p)(a))
OPERATION(power, HEAVY, NAME(pow)(a, b))
OPERATION(power_by, HEAVY, NAME(pow)(a, option)) /* one exponent for all */
