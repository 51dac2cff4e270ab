"""Lab 13: solutions with one mistake, written in another way than the classes that recognize it."""

from __future__ import annotations

STEP = "strides[i] // itemsize"
SORT = "    found.sort(key=lambda axis: -axis[2])\n"
BLOCK = "    expected = 1\n    for _, count, step in reversed(found):\n"
REFUSAL = "        if step != expected:\n"
MERGE = "loops[-1][1:] == (count * data, count * param[axis])"
PARAM = "param[axis] = step if axis in varies else 0"
VAR = "var = np.square(x - mean).mean(axis=1, keepdims=True)"
ROOT = "np.sqrt(var + eps)"
UNIQUE = "len(np.unique(positions(reduce, 1) * itemsize // 64))"
MOVES = "any(data == 1 and param != 0 for _, data, param in reduce)"
MADE: dict[str, list[tuple[str, str]]] = {
    "StepsInBytes": [(STEP, "strides[i]"), ("    expected = 1\n", "    expected = itemsize\n")],
    "OnesKept": [(" if n != 1]", "]"), (BLOCK, BLOCK.replace("reversed(found)", "[axis for axis in found[::-1] if axis[1] > 1]"))],
    "NotSorted": [(SORT, "    given = found\n    found = sorted(found, key=lambda axis: -axis[2])\n"), ("        expected *= count\n    return found\n", "        expected *= count\n    return given\n")],
    "NarrowestFirst": [("        expected *= count\n    return found\n", "        expected *= count\n    return list(reversed(found))\n")],
    "SignDropped": [(STEP, "np.abs(strides[i]) // itemsize")],
    "NothingRefused": [(REFUSAL, "        if False:\n")],
    "MergedAcrossBroadcast": [(MERGE, "loops[-1][1] == count * data")],
    "MergedAcrossGap": [(MERGE, "loops[-1][2] == param[axis] * count")],
    "NothingMerged": [(f"        if loops and {MERGE}:\n            count *= loops.pop()[0]\n", "")],
    "Swapped": [("reduce if axis in reduced else keep", "keep if axis in reduced else reduce")],
    "ParamOfData": [(PARAM, "param[axis] = _ if axis in varies else 0")],
    "ParamOfOne": [(PARAM, "param[axis] = 1 if axis in varies else 0")],
    "RowParameters": [("    x = flat[data]", "    param = np.repeat(param[:, :1], data.shape[1], axis=1)\n    x = flat[data]")],
    "SampleVariance": [(VAR, "var = np.var(x, axis=1, ddof=1, keepdims=True)")],
    "EpsOutside": [(ROOT, "(var**0.5 + eps)")],
    "EpsForgotten": [(ROOT, "var**0.5")],
    "InRowOrder": [("    result[data] = y\n", "    result[...] = y.ravel()\n")],
    "ColumnsMissed": [("    if any(data == 1 for _, data, _ in keep):\n        return \"columns\"\n", "    if keep is None:\n        return \"columns\"\n")],
    "AnyParameter": [(MOVES, "sum(param for _, _, param in reduce) > 0")],
    "ElementsCounted": [(UNIQUE, "positions(reduce, 1).size")],
    "BytesDivided": [(UNIQUE, "int(np.ceil(positions(reduce, 1).size * itemsize / 64))")],
    "PlacesForBytes": [(UNIQUE, "len(np.unique(positions(reduce, 1) // 64))")],
}  # fmt: skip
