"""Renamed and reformatted code counts as alike; a different solution does not."""

from __future__ import annotations

from minorm.labs.judge.similarity import alike, fingerprints

ONE = """
def moments(x, axes, centered=True):
    mean = x.mean(axis=axes, keepdims=True) if centered else 0 * x.mean(axis=axes, keepdims=True)
    return mean, ((x - mean) ** 2).mean(axis=axes, keepdims=True)

def normalize(x, axes, eps=1e-5, centered=True):
    mean, var = moments(x, axes, centered)
    return (x - mean) / np.sqrt(var + eps)

def affine(xhat, s, b, axis):
    y = xhat
    if s is not None:
        y = y * s.reshape(s.shape + (1,) * (xhat.ndim - axis - s.ndim))
    if b is not None:
        y = y + b.reshape(b.shape + (1,) * (xhat.ndim - axis - b.ndim))
    return y
"""
RENAMED = "\n".join(
    f"{line}   # mine" if line else "\n"
    for line in ONE.replace("mean, var", "mu, v")
    .replace("moments", "stats")
    .replace("xhat", "z")
    .replace("axes", "d")
    .split("\n")
)
OTHER = """
def moments(x, axes, centered=True):
    m = 1
    for axis in axes:
        m *= x.shape[axis]
    total = np.sum(x, axes, keepdims=True)
    mean = total / m
    if not centered:
        mean[...] = 0
    squares = np.square(np.subtract(x, mean))
    return mean, np.add.reduce(squares, axes, keepdims=True) / m

def affine(xhat, s, b, axis):
    behind = [1] * (len(xhat.shape) - axis)
    for name, value in {"scale": s, "bias": b}.items():
        if value is None:
            continue
        shape = list(value.shape) + behind[len(value.shape):]
        xhat = xhat * np.reshape(value, shape) if name == "scale" else xhat + np.reshape(value, shape)
    return xhat
"""


def test_names_and_comments_do_not_count() -> None:
    assert fingerprints(ONE.split("\n")) == fingerprints(RENAMED.split("\n"))


def test_a_copy_is_found_and_another_way_is_not() -> None:
    prints = {name: fingerprints(text.split("\n")) for name, text in (("a", ONE), ("b", RENAMED), ("c", OTHER))}
    found = alike(prints)
    assert found["a"] == {"b": 1.0}
    assert found["b"] == {"a": 1.0}
    assert found["c"] == {}


def test_a_part_in_a_longer_file_is_found() -> None:
    prints = {"a": fingerprints(ONE.split("\n")), "b": fingerprints((OTHER + RENAMED).split("\n"))}
    assert alike(prints)["a"]["b"] > 0.85


def test_what_the_class_has_in_common_says_nothing() -> None:
    prints = {str(i): fingerprints(ONE.split("\n")) for i in range(8)}
    assert all(not others for others in alike(prints).values())


def test_short_or_broken_code_is_not_compared() -> None:
    assert fingerprints(["x = 1"]) == set()
    assert fingerprints(["def f(:", "'''"]) == set()
    assert alike({"a": {1, 2}, "b": {1, 2}}) == {"a": {}, "b": {}}
