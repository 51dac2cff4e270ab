/* The activations of a step, in the order of kernels/reference/gates.py: name, value y at x, and slope at x. alpha and
 * beta are parameters of some activations. cells.inc.h makes a loop of each formula, and a table of the loops. */

ACTIVATION(Relu, x <= 0 ? 0 : x, x > 0 ? 1 : 0)
ACTIVATION(Tanh, NAME(tanh)(x), 1 - y * y)
ACTIVATION(Sigmoid, NAME(sigmoid)(x), y * (1 - y))
ACTIVATION(Softsign, x / (1 + NAME(positive)(x)), 1 / ((1 + NAME(positive)(x)) * (1 + NAME(positive)(x))))
ACTIVATION(Softplus, NAME(log1p)(NAME(exp)(-NAME(positive)(x))) + (x <= 0 ? 0 : x), NAME(sigmoid)(x))
ACTIVATION(LeakyRelu, x < 0 ? alpha * x : x, x < 0 ? alpha : 1)
ACTIVATION(ThresholdedRelu, x > alpha ? x : 0, x > alpha ? 1 : 0)
ACTIVATION(Elu, x < 0 ? alpha * NAME(expm1_up_to_40)(x < 0 ? x : 0) : x, x < 0 ? y + alpha : 1)
ACTIVATION(Affine, alpha * x + beta, alpha)
ACTIVATION(ScaledTanh, alpha * NAME(tanh)(beta * x), alpha * beta * (1 - NAME(tanh)(beta * x) * NAME(tanh)(beta * x)))
ACTIVATION(HardSigmoid, NAME(unit)(alpha * x + beta), y > 0 && y < 1 ? alpha : 0)
