"""More of PyTorch's methods of a Tensor, one file for each family. Most methods are one line that calls other methods.

pointwise.py          functions of each element, arithmetic by name
comparisons.py        comparisons and logic by name
special_functions.py  the error function, its inverse, and similar functions
choosing.py           choose elements by index or by a mask; rearrange axes
matrices.py           triangles and diagonals of matrices
scattering.py         write elements to given indices
index_places.py       convert a list of indices and masks to indices for each axis
ordering.py           sort, topk, unique, median, quantile, counts
sums_and_products.py  products, norms, running sums along an axis
products.py           products of vectors and matrices
queries.py            properties, conversions, and new Tensors of the same type
assigning.py          the in-place forms of methods: x.exp_() for x.exp()
"""

from __future__ import annotations

from typing import Generic

from minorm.support.argument_errors import numpys_methods
from minorm.tensor.methods.assigning import Assigning
from minorm.tensor.methods.matrices import Matrices
from minorm.tensor.methods.ordering import Ordering
from minorm.tensor.methods.pointwise import Pointwise
from minorm.tensor.methods.products import Products
from minorm.tensor.methods.random_draws import RandomDraws
from minorm.tensor.methods.scattering import Scattering
from minorm.tensor.methods.special_functions import SpecialFunctions
from minorm.tensor.methods.sums_and_products import SumsAndProducts
from minorm.tensor.shapes import TensorT


@numpys_methods
class Methods(
    Pointwise[TensorT],
    SpecialFunctions[TensorT],
    Matrices[TensorT],
    Scattering[TensorT],
    Ordering[TensorT],
    SumsAndProducts[TensorT],
    Products[TensorT],
    RandomDraws[TensorT],
    Assigning[TensorT],
    Generic[TensorT],
):
    """All families of methods. Instead of `dim` and `keepdim`, callers may write `axis` and `keepdims`, as in NumPy and
    PyTorch.
    """

    __slots__ = ()
