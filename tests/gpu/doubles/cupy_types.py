"""The arguments of CuPy 14.2's functions: types of the loops of each ufunc and reduction, signatures of functions.

A loop is written as NumPy writes it, `ff->f`; `n` stands for every integer type in turn, E is bfloat16. CuPy takes the
first loop whose types all arguments can be cast to: where(c, bfloat16, bfloat16), which has no E, gives float32.
tests/gpu/test_cupy_double.py compares all of this with the CuPy that is installed.
"""

from __future__ import annotations

INTEGERS = "bBhHiIlLqQ"

COMPARISON = "??->? qq->? QQ->? qQ->? Qq->? ee->? EE->? ff->? dd->?"
FLOAT = "e->e E->E f->f d->d"
FLOATS = "ee->e EE->E ff->f dd->d"
NUMBER = "n->n " + FLOAT
NUMBERS = "nn->n " + FLOATS
TEST = "e->? E->? f->? d->?"
LOGICAL = "??->? qq->? QQ->? qQ->? Qq->? ee->? EE->? ff->? dd->?"

UFUNCS = {
    "absolute": "?->? " + NUMBER,
    "add": "??->? " + NUMBERS,
    "arctan2": FLOATS,
    "bitwise_and": "??->? nn->n",
    "bitwise_or": "??->? nn->n",
    "bitwise_xor": "??->? nn->n",
    "ceil": "?->? " + NUMBER,
    "copysign": FLOATS,
    "arccos": FLOAT,
    "arccosh": FLOAT,
    "arcsin": FLOAT,
    "arcsinh": FLOAT,
    "arctan": FLOAT,
    "arctanh": FLOAT,
    "cos": FLOAT,
    "cosh": FLOAT,
    "equal": COMPARISON,
    "exp": FLOAT,
    "expm1": FLOAT,
    "hypot": FLOATS,
    "floor": "?->? " + NUMBER,
    "floor_divide": NUMBERS,
    "fmax": "??->? " + NUMBERS,
    "fmin": "??->? " + NUMBERS,
    "fmod": NUMBERS,
    "greater": COMPARISON,
    "greater_equal": COMPARISON,
    "invert": "?->? n->n",
    "isfinite": TEST,
    "isinf": TEST,
    "isnan": TEST,
    "left_shift": "nn->n",
    "less": COMPARISON,
    "less_equal": COMPARISON,
    "log": FLOAT,
    "log1p": FLOAT,
    "log2": FLOAT,
    "logaddexp": FLOATS,
    "logical_and": LOGICAL,
    "logical_not": "?->? n->? e->? f->? d->?",
    "logical_or": LOGICAL,
    "logical_xor": "??->? nn->? ee->? ff->? dd->?",
    "maximum": "??->? " + NUMBERS,
    "minimum": "??->? " + NUMBERS,
    "multiply": "??->? " + NUMBERS,
    "negative": "?->? " + NUMBER,
    "not_equal": COMPARISON,
    "positive": "?->? " + NUMBER,
    "power": "??->b " + NUMBERS,
    "reciprocal": NUMBER,
    "remainder": NUMBERS,
    "right_shift": "nn->n",
    "rint": FLOAT,
    "sign": NUMBER,
    "signbit": TEST,
    "sin": FLOAT,
    "sinh": FLOAT,
    "sqrt": FLOAT,
    "square": NUMBER,
    "subtract": "??->? " + NUMBERS,
    "tan": FLOAT,
    "tanh": FLOAT,
    "true_divide": "qq->d qQ->d Qq->d QQ->d " + FLOATS,
    "trunc": "?->? " + NUMBER,
}
ALIASES = {"abs": "absolute", "divide": "true_divide", "mod": "remainder", "pow": "power", "bitwise_not": "invert"}

# Ufuncs without a public name.
WHERE = "???->? ?nn->n ?ee->e ?ff->f ?dd->d"
CLIP = "???->? nnn->n eee->e fff->f ddd->d"

# Reductions: from the type of the elements to that of the result.
TOTAL = "?->l b->l B->L h->l H->L i->l I->L l->l L->L q->q Q->Q e->e E->E f->f d->d"
EXTREME = "?->? n->n e->e E->E f->f d->d"
REDUCTIONS = {
    "sum": TOTAL,
    "prod": TOTAL,
    "max": EXTREME,
    "min": EXTREME,
    "mean": "?->d B->d h->d H->d i->d I->d l->d L->d q->d Q->d E->E e->e f->f d->d",
}

# The arguments that functions take; NumPy's have others, which CuPy refuses.
SIGNATURES = {
    "all": "a, axis=None, out=None, keepdims=False",
    "allclose": "a, b, rtol=1e-05, atol=1e-08, equal_nan=False",
    "amax": "a, axis=None, out=None, keepdims=False",
    "amin": "a, axis=None, out=None, keepdims=False",
    "any": "a, axis=None, out=None, keepdims=False",
    "arange": "start, stop=None, step=1, dtype=None",
    "argmax": "a, axis=None, dtype=None, out=None, keepdims=False",
    "argmin": "a, axis=None, dtype=None, out=None, keepdims=False",
    "argsort": "a, axis=-1, kind=None",
    "argwhere": "a",
    "array_equal": "a1, a2, equal_nan=False",
    "ascontiguousarray": "a, dtype=None",
    "atleast_1d": "*arys",
    "bincount": "x, weights=None, minlength=None",
    "broadcast_to": "array, shape",
    "clip": "a, a_min, a_max, out=None",
    "concatenate": "tup, axis=0, out=None, *, dtype=None, casting='same_kind'",
    "copyto": "dst, src, casting='same_kind', where=None",
    "count_nonzero": "a, axis=None",
    "cumprod": "a, axis=None, dtype=None, out=None",
    "cumsum": "a, axis=None, dtype=None, out=None",
    "diagonal": "a, offset=0, axis1=0, axis2=1",
    "diff": "a, n=1, axis=-1, prepend=None, append=None",
    "dot": "a, b, out=None",
    "empty": "shape, dtype=<class 'float'>, order='C'",
    "empty_like": "prototype, dtype=None, order='K', subok=None, shape=None",
    "expand_dims": "a, axis",
    "histogram": "x, bins=10, range=None, density=False, weights=None",
    "eye": "N, M=None, k=0, dtype=<class 'float'>, order='C'",
    "flip": "a, axis=None",
    "full": "shape, fill_value, dtype=None, order='C'",
    "full_like": "a, fill_value, dtype=None, order='K', subok=None, shape=None",
    "indices": "dimensions, dtype=<class 'int'>",
    "linspace": "start, stop, num=50, endpoint=True, retstep=False, dtype=None, axis=0",
    "max": "a, axis=None, out=None, keepdims=False",
    "may_share_memory": "a, b, max_work=None",
    "mean": "a, axis=None, dtype=None, out=None, keepdims=False",
    "min": "a, axis=None, out=None, keepdims=False",
    "moveaxis": "a, source, destination",
    "nan_to_num": "x, copy=True, nan=0.0, posinf=None, neginf=None",
    "nonzero": "a",
    "ones": "shape, dtype=<class 'float'>, order='C'",
    "ones_like": "a, dtype=None, order='K', subok=None, shape=None",
    "pad": "array, pad_width, mode='constant', **kwargs",
    "prod": "a, axis=None, dtype=None, out=None, keepdims=False",
    "put_along_axis": "arr, indices, values, axis",
    "ravel": "a, order='C'",
    "repeat": "a, repeats, axis=None",
    "reshape": "a, newshape, order='C', *, copy=None",
    "roll": "a, shift, axis=None",
    "searchsorted": "a, v, side='left', sorter=None",
    "sort": "a, axis=-1, kind=None",
    "split": "ary, indices_or_sections, axis=0",
    "squeeze": "a, axis=None",
    "stack": "tup, axis=0, out=None, *, dtype=None, casting='same_kind'",
    "sum": "a, axis=None, dtype=None, out=None, keepdims=False",
    "swapaxes": "a, axis1, axis2",
    "take": "a, indices, axis=None, out=None",
    "take_along_axis": "a, indices, axis",
    "tile": "A, reps",
    "transpose": "a, axes=None",
    "unique": "ar, return_index=False, return_inverse=False, return_counts=False, axis=None, *, equal_nan=True",
    "where": "condition, x=None, y=None",
    "zeros": "shape, dtype=<class 'float'>, order='C'",
    "zeros_like": "a, dtype=None, order='K', subok=None, shape=None",
}


def loops(text: str) -> list[tuple[str, str]]:
    """(types of the arguments, types of the results) of every loop, in CuPy's order."""
    words = [word.replace("n", letter) for word in text.split() for letter in (INTEGERS if "n" in word else "-")]
    return [(word.partition("->")[0], word.partition("->")[2]) for word in words]
