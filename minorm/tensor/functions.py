"""A table of functions that call the methods of a Tensor. `minorm.exp(x)` calls `x.exp()`, with the same arguments.

The first argument may be given as `input`, which is its name in PyTorch.
"""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable
from typing import Any, TypeVar

from minorm.ops import elementary
from minorm.ops.operands import operands
from minorm.support.argument_errors import checked, not_a_tensor, numpys, wrong_call
from minorm.support.argument_texts import AXES
from minorm.support.documented import documented, introduced
from minorm.tensor.tensor import Tensor, as_tensor

Method = TypeVar("Method", bound=Callable[..., Any])


def function(method: Method, number_first: bool = False) -> Method:
    """Return the method as a function that checks its first argument.

    number_first=True allows a number as the first argument if another argument is a Tensor, as in `mn.pow(2, x)`.
    """
    name = method.__name__

    @functools.wraps(method)
    def run(*args: Any, **kwargs: Any) -> Any:
        if not args:
            args = tuple(kwargs.pop(key) for key in ("input", "self", "x", "tensor") if key in kwargs)
        if args and not isinstance(args[0], Tensor):
            other = next((value for value in (*args[1:], *kwargs.values()) if isinstance(value, Tensor)), None)
            if not number_first or other is None or not isinstance(args[0], numbers.Real):
                raise not_a_tensor(name, "x", args[0])
            args = (operands(name, args[0], other)[0], *args[1:])
        try:
            return method(*args, **kwargs)
        except TypeError:
            if error := wrong_call(name, method, args, kwargs):
                raise error from None
            raise

    run.__doc__ = introduced(f"x.{name}(...): ", method.__doc__)
    return run  # type: ignore[return-value]


# Functions of each element

abs = function(Tensor.abs)
add = function(Tensor.add, number_first=True)
addcdiv = function(Tensor.addcdiv)
addcmul = function(Tensor.addcmul)
atan = function(Tensor.atan)
atan2 = function(Tensor.atan2)
ceil = function(Tensor.ceil)
cos = function(Tensor.cos)
div = function(Tensor.div, number_first=True)
erf = function(Tensor.erf)
exp = function(Tensor.exp)
expm1 = function(Tensor.expm1)
floor = function(Tensor.floor)
floor_divide = function(Tensor.floor_divide, number_first=True)
isfinite = function(Tensor.isfinite)
isinf = function(Tensor.isinf)
isnan = function(Tensor.isnan)
lerp = function(Tensor.lerp)
log = function(Tensor.log)
log1p = function(Tensor.log1p)
logaddexp = function(Tensor.logaddexp)
logit = function(Tensor.logit)
log_softmax = function(Tensor.log_softmax)
logical_and = function(Tensor.logical_and)
logical_not = function(Tensor.logical_not)
logical_or = function(Tensor.logical_or)
logical_xor = function(Tensor.logical_xor)
masked_fill = function(Tensor.masked_fill)
mul = function(Tensor.mul, number_first=True)
nan_to_num = function(Tensor.nan_to_num)
neg = function(Tensor.neg)
pow = function(Tensor.pow, number_first=True)
reciprocal = function(Tensor.reciprocal)
relu = function(Tensor.relu)
remainder = function(Tensor.remainder, number_first=True)
round = function(Tensor.round)
rsqrt = function(Tensor.rsqrt)
sigmoid = function(Tensor.sigmoid)
sign = function(Tensor.sign)
sin = function(Tensor.sin)
softmax = function(Tensor.softmax)
sqrt = function(Tensor.sqrt)
square = function(Tensor.square)
sub = function(Tensor.sub, number_first=True)
tan = function(Tensor.tan)
tanh = function(Tensor.tanh)
trunc = function(Tensor.trunc)
bitwise_and = function(Tensor.bitwise_and, number_first=True)
bitwise_not = function(Tensor.bitwise_not)
bitwise_or = function(Tensor.bitwise_or, number_first=True)
bitwise_xor = function(Tensor.bitwise_xor, number_first=True)
clamp_max = function(Tensor.clamp_max)
clamp_min = function(Tensor.clamp_min)
cosh = function(Tensor.cosh)
erfc = function(Tensor.erfc)
erfinv = function(Tensor.erfinv)
exp2 = function(Tensor.exp2)
fmod = function(Tensor.fmod)
log10 = function(Tensor.log10)
log2 = function(Tensor.log2)
positive = function(Tensor.positive)
sinh = function(Tensor.sinh)

# Comparisons

eq = function(Tensor.eq)
ne = function(Tensor.ne)
lt = function(Tensor.lt)
le = function(Tensor.le)
gt = function(Tensor.gt)
ge = function(Tensor.ge)
equal = function(Tensor.equal)
isclose = function(Tensor.isclose)

# Sums, products, extremes

sum = function(Tensor.sum)
mean = function(Tensor.mean)
nansum = function(Tensor.nansum)
nanmean = function(Tensor.nanmean)
var = function(Tensor.var)
std = function(Tensor.std)
amax = function(Tensor.amax)
amin = function(Tensor.amin)
max = function(Tensor.max)
min = function(Tensor.min)
argmax = function(Tensor.argmax)
argmin = function(Tensor.argmin)
all = function(Tensor.all)
any = function(Tensor.any)
prod = function(Tensor.prod)
logsumexp = function(Tensor.logsumexp)
norm = function(Tensor.norm)
dist = function(Tensor.dist)
cumsum = function(Tensor.cumsum)
cumprod = function(Tensor.cumprod)
diff = function(Tensor.diff)

MOMENTS = AXES | {
    "input": "a Tensor of floats",
    "unbiased": "False divides by N, and ignores correction",
    "correction": "the number subtracted from N; 1 makes the estimate of the variance unbiased, None is 0",
}


@documented(MOMENTS)
@numpys
@checked
def var_mean(
    input: Any, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: float | None = 1
) -> tuple[Tensor, Tensor]:
    """Return the variance and the mean over `dim`.

    Example:
        >>> mn.var_mean(mn.tensor([1.0, 3.0]))
        (tensor(2.), tensor(2.))
    """
    return var(input, dim, unbiased, keepdim, correction=correction), _mean(input, dim, keepdim)


@documented(MOMENTS)
@numpys
@checked
def std_mean(
    input: Any, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: float | None = 1
) -> tuple[Tensor, Tensor]:
    """Return the standard deviation and the mean over `dim`.

    Example:
        >>> mn.std_mean(mn.tensor([1.0, 3.0]), correction=0)
        (tensor(1.), tensor(2.))
    """
    return std(input, dim, unbiased, keepdim, correction=correction), _mean(input, dim, keepdim)


def _mean(x: Any, dim: Any, keepdim: bool) -> Tensor:
    return mean(x, None if isinstance(dim, bool) else dim, keepdim)  # var_mean(x, False) has no dim


# Order and counts

sort = function(Tensor.sort)
argsort = function(Tensor.argsort)
topk = function(Tensor.topk)
median = function(Tensor.median)
quantile = function(Tensor.quantile)
unique = function(Tensor.unique)
histc = function(Tensor.histc)
bincount = function(Tensor.bincount)

# Axes

flatten = function(Tensor.flatten)
unflatten = function(Tensor.unflatten)
reshape = function(Tensor.reshape)
transpose = function(Tensor.transpose)
swapaxes = function(Tensor.swapaxes)
movedim = function(Tensor.movedim)
permute = function(Tensor.permute)
squeeze = function(Tensor.squeeze)
unsqueeze = function(Tensor.unsqueeze)
t = function(Tensor.t)
flip = function(Tensor.flip)
fliplr = function(Tensor.fliplr)
flipud = function(Tensor.flipud)
roll = function(Tensor.roll)
chunk = function(Tensor.chunk)
unbind = function(Tensor.unbind)
broadcast_to = function(Tensor.broadcast_to)
ravel = function(Tensor.ravel)
tile = function(Tensor.tile)
split_with_sizes = function(Tensor.split_with_sizes)
tensor_split = function(Tensor.tensor_split)


@documented(
    {},
    split_size_or_sections="the length of a piece, or a list with the length of each",
    dim="an axis; negative numbers count from the end",
)
@function
def split(self: Any, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Split x along `dim` into pieces of equal size (the last piece may be shorter) or of the sizes in a list.

    Example:
        >>> mn.split(mn.arange(5), 2)
        (tensor([0, 1]), tensor([2, 3]), tensor([4]))
    """
    return Tensor.split(self, split_size_or_sections, dim)


# Choosing by place or by a mask

gather = function(Tensor.gather)
take_along_dim = function(Tensor.take_along_dim)
index_select = function(Tensor.index_select)
select = function(Tensor.select)
narrow = function(Tensor.narrow)
masked_select = function(Tensor.masked_select)
nonzero = function(Tensor.nonzero)
argwhere = function(Tensor.argwhere)
count_nonzero = function(Tensor.count_nonzero)
repeat_interleave = function(Tensor.repeat_interleave)
trace = function(Tensor.trace)
tril = function(Tensor.tril)
triu = function(Tensor.triu)
diag = function(Tensor.diag)
diagonal = function(Tensor.diagonal)
diag_embed = function(Tensor.diag_embed)

# Writing to places

scatter = function(Tensor.scatter)
scatter_add = function(Tensor.scatter_add)
index_add = function(Tensor.index_add)
index_copy = function(Tensor.index_copy)
index_fill = function(Tensor.index_fill)
index_put = function(Tensor.index_put)
masked_scatter = function(Tensor.masked_scatter)
scatter_reduce = function(Tensor.scatter_reduce)

# Products of vectors and matrices

dot = function(Tensor.dot)
mv = function(Tensor.mv)
mm = function(Tensor.mm)
bmm = function(Tensor.bmm)
outer = function(Tensor.outer)
addmm = function(Tensor.addmm)
baddbmm = function(Tensor.baddbmm)

# Copies and questions

bernoulli = function(Tensor.bernoulli)
multinomial = function(Tensor.multinomial)
clone = function(Tensor.clone)
detach = function(Tensor.detach)
numel = function(Tensor.numel)
is_floating_point = function(Tensor.is_floating_point)
is_complex = function(Tensor.is_complex)
is_signed = function(Tensor.is_signed)
is_same_size = function(Tensor.is_same_size)

# Bounds

clip = clamp = function(Tensor.clip)

multiply, subtract, divide, true_divide, negative = mul, sub, div, div, neg
greater, greater_equal, less, less_equal, not_equal = gt, ge, lt, le, ne
absolute, arctan, arctan2, swapdims, moveaxis = abs, atan, atan2, transpose, movedim


@documented({}, input="a number or a Tensor", other="a number or a Tensor; Tensors broadcast with each other")
@checked
def xlogy(input: Any, other: Any) -> Tensor:
    """input * log(other). The result is 0 where input is 0 (as for p * log(p)), and NaN where other is NaN.

    Example:
        >>> mn.xlogy(2.0, mn.tensor([1.0, 2.0]))
        tensor([0.    , 1.3863])
    """
    first = input if isinstance(other, Tensor) else as_tensor(input)
    found: Tensor = elementary.XLogY.apply(*operands("xlogy", first, other, real=True))
    return found
