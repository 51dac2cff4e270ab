"""Lab 0: solutions with one mistake, written in another way than the classes that recognize it."""

from __future__ import annotations

FIRST = 'first = {"batch": 1, "instance": 2, "layer": 1, "group": 2}[kind]'
LAST = 'last = ndim + 1 if kind == "group" else ndim'
AXES = 'return tuple(i for i in range(ndim) if i != 1) if kind == "batch" else axes'
MASK = "return sum(1 << axis for axis in set(axes))"
BITS = "return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)"
SPLIT = "return x.reshape(n, num_groups, c // num_groups, *x.shape[2:])"
REFUSED = "    if num_groups < 1 or c % num_groups:\n"
MARKED = "row[tuple(slice(None) if axis in axes else i for axis, i in enumerate(index))] = True"
MET = "if found and found[-1][1] == count * step:"
ONES = "        if count == 1:\n            continue\n"
WALK = "found = [p + i * step for p in found for i in range(count)]"
MEAN = "flat[start + inside].mean() for start in positions(keep)"
MADE: dict[str, list[tuple[str, str]]] = {
    "KeptReturned": [(AXES, "return tuple(set(range(first if kind != 'batch' else 2))) if kind != 'batch' else (1,)")],
    "BatchOverBatch": [(AXES, "return (0,) if kind == 'batch' else axes")],
    "BatchWithoutBatch": [(AXES, "return axes[1:] if kind == 'batch' else axes")],
    "LayerLastAxis": [(AXES, "axes = axes[-1:] if kind == 'layer' else axes\n    " + AXES)],
    "LayerWithoutChannels": [('"layer": 1', '"layer": 2')],
    "LayerOverAll": [('"layer": 1', '"layer": 0')],
    "InstanceWithChannels 2": [('"instance": 2, "layer": 1', '"instance": 1, "layer": 2')],
    "InstanceWithChannels": [('"instance": 2', '"instance": 1')],
    "GroupBeforeSplit": [(LAST, "last = ndim")],
    "GroupWithoutChannels": [('"group": 2', '"group": 3')],
    "GroupWithBatch": [(AXES, "axes = (0, *axes) if kind == 'group' else axes\n    " + AXES)],
    "FourAxesOnly": [(FIRST, "ndim = 4\n    " + FIRST)],
    "BitsReversed": [(BITS, "return tuple(mask.bit_length() - 1 - i for i in reversed(range(mask.bit_length())) if mask >> i & 1)")],
    "BitsFromOne": [(MASK, "return sum(2 << axis for axis in axes)")],
    "AxesAdded": [(MASK, "return int(np.sum(axes))")],
    "AxesSquared": [(MASK, "return sum(axis * axis for axis in axes)")],
    "MaskAsText": [(MASK, "return format(sum(1 << axis for axis in axes), 'b')")],
    "MaskAsPrefixedText": [(MASK, "return bin(sum(1 << axis for axis in axes))")],
    "DigitsOfTen": [(MASK, "return sum(10**axis for axis in axes)")],
    "LastAxisMissing": [(BITS, "return tuple(i for i in range(mask.bit_length() - 1) if mask >> i & 1)")],
    "FallingOrder": [(BITS, "return tuple(i for i in reversed(range(mask.bit_length())) if mask >> i & 1)")],
    "FirstAxesOnly": [(BITS, "return tuple(i for i in range(8) if mask & 2**i)")],
    "FirstAxesOnly 2": [(BITS, "return tuple(i for i in range(4) if mask & 2**i)")],
    "GroupsInterleaved": [(SPLIT, "return np.stack([x[:, i::num_groups] for i in range(num_groups)], axis=1)")],
    "GroupsLast": [(SPLIT, "return np.moveaxis(x.reshape(n, num_groups, c // num_groups, *x.shape[2:]), 1, 2)")],
    "SizesSwapped": [(SPLIT, "return x.reshape(n, c // num_groups, num_groups, *x.shape[2:])")],
    "BatchSplit": [(SPLIT, "return x.reshape(num_groups, n // num_groups, *x.shape[1:])")],
    "FourAxesTaken": [(SPLIT, "return x.reshape(n, num_groups, c // num_groups, x.shape[2], x.shape[3])"), ("n, c = x.shape[:2]", "n, c, h, w = x.shape")],
    "PositionsFlat": [(SPLIT, "return x.reshape(n, num_groups, c // num_groups, -1)")],
    "ListOfGroups": [(SPLIT, "return np.array(np.split(x, num_groups, axis=1))")],
    "NotRefused": [(REFUSED, "    if False:\n")],
    "KeptFree": [(MARKED, MARKED.replace("if axis in axes", "if axis not in axes"))],
    "ElementAlone": [(MARKED, "row[tuple(index)] = True")],
    "AnyAxis": [(MARKED, "for axis in set(range(len(shape))) - set(axes):\n        np.moveaxis(row, axis, 0)[index[axis]] = True")],
    "RowInverted": [("row = np.zeros(shape, bool)", "row = np.ones(shape, bool)"), (MARKED, MARKED.replace("= True", "= False"))],
    "NotMerged": [(MET, "if False:")],
    "AlwaysMerged": [(MET, "if found:")],
    "OnesKept": [(ONES, "")],
    "OnesKeptUnmerged": [(ONES, ""), (MET, "if False:")],
    "ColumnMajor": [("step = int(np.prod(shape))", "step, before = 1, 1"), ("step //= count", "step, before = before, before * count")],
    "StepOfItself": [("            found.append((count, step))", "            found.append((count, step * count))"), (MET, "if found and found[-1][1] == count * count * step:"), ("found[-1] = (found[-1][0] * count, step)", "found[-1] = (found[-1][0] * count, step * count)")],
    "StepInBytes": [("step = int(np.prod(shape))", "step = 8 * int(np.prod(shape))")],
    "OuterStepKept": [("found[-1] = (found[-1][0] * count, step)", "found[-1] = (found[-1][0] * count, found[-1][1])")],
    "KindsSwapped": [("found = reduce if axis in axes else keep", "found = keep if axis in axes else reduce")],
    "InnerFirst": [("    return keep, reduce\n    # END", "    keep.reverse(), reduce.reverse()\n    return keep, reduce\n    # END")],
    "StepFirst": [("    return keep, reduce\n    # END", "    return [(s, c) for c, s in keep], [(s, c) for c, s in reduce]\n    # END")],
    "InnerSlowest": [(WALK, "found = [p + i * step for i in range(count) for p in found]")],
    "NothingVisited": [("    found = [0]\n", "    found = [0] if some_loops else []\n")],
    "StepsIgnored": [(WALK, "found = [p + i for p in found for i in range(count)]")],
    "PositionsSorted": [("    return found\n    # END\n\n\ndef means", "    return sorted(found)\n    # END\n\n\ndef means")],
    "TurnTooMany": [(WALK, "found = [p + i * step for p in found for i in range(count + 1)]")],
    "SumsForMeans": [(MEAN, MEAN.replace("mean()", "sum()"))],
    "RowsSwapped": [("inside = np.array(positions(reduce))", "inside = np.array(positions(keep))"), (MEAN, MEAN.replace("keep", "reduce"))],
}  # fmt: skip
