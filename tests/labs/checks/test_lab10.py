"""Lab 10: typical wrong readers lose their points and no others; the zoo is valid and minorm reads it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minorm.labs import zoo
from minorm.labs.checks import lab10_onnx_archaeology as checks

onnx = pytest.importorskip("onnx")

NEWEST, TOO_OLD, DOMAINS = (
    "the newest version at or before the opset",
    "an opset that is too old or missing",
    "other domains, and the long name of ONNX's own",
)
DEFAULTS, SAID, FEW = "defaults of every version", "values in the file", "unknown and missing attributes"
MODES, UNFIT = "three ways to write the mode", "outputs that do not fit the mode"
AXES, RANKS = "one mean for each channel, or for each position", "any rank"
INFERENCE, TRAINING = "inference", "training"
POSITIONS, MIXED = "statistics for each position", "other types, other ranks"
GROUPS, STASH, SHAPES = (
    "one scale for each group, or for each channel",
    "large numbers, float64",
    "shapes that do not fit",
)
BATCH_ZOO, GROUP_ZOO, RARE = "the zoo: BatchNormalization", "the zoo: GroupNormalization", "the zoo: rare models"
NORM = {INFERENCE, TRAINING, POSITIONS, MIXED}
LAST = {BATCH_ZOO, RARE}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # the opset is taken for the version
        ([("    return max(older)", "    return opsets[domain]")], {NEWEST, DOMAINS, BATCH_ZOO, GROUP_ZOO, RARE}),
        # the first opset of the list is taken for any domain
        (
            [("opsets = {short.get(o.domain, o.domain): o.version for o in model.opset_import}",
              'opsets = {"": model.opset_import[0].version}')],
            {DOMAINS, RARE},
        ),
        # the long name is not known
        ([("{short.get(o.domain, o.domain): ", "{o.domain: ")], {DOMAINS, RARE}),
        # 0.9 and 1e-5 in 64 bits; hardly seen elsewhere
        ([("float(np.float32(0.9))", "0.9"), ("float(np.float32(1e-5))", "1e-5")], {DEFAULTS, SAID}),
        # PyTorch's default
        ([("float(np.float32(0.9))", "float(np.float32(0.1))")], {DEFAULTS, SAID, *LAST}),
        # defaults replace the values in the file
        ([("return defaults | said", "return said | defaults")], {SAID, MODES, UNFIT, *LAST}),
        # attributes of other versions are not refused
        ([("    if unknown :=", "    if False and (unknown :="), ("- required:", "- required):")], {FEW, UNFIT}),
        # is_test absent is taken for inference, as converters do
        ([('not found["is_test"]', 'not (found["is_test"] or "is_test" not in str(node))')], {MODES, *LAST}),
        # the number of outputs decides in all versions
        (
            [("    if version <= 6:\n        trains =", "    if version <= 0:\n        trains ="),
             ("version <= 9:\n        trains = outputs", "version <= 99:\n        trains = outputs")],
            {MODES, UNFIT, *LAST},
        ),
        # always one mean for each channel
        ([("(0, *range(1 + len(scale_shape), len(x_shape)))", "(0, *range(2, len(x_shape)))")],
         {AXES, RANKS, POSITIONS, *LAST}),
        # momentum the wrong way round
        ([('keep = found["momentum"]', 'keep = 1 - found["momentum"]')], {TRAINING, POSITIONS, MIXED, *LAST}),
        # N - 1
        ([("wide.var(axes)\n", "wide.var(axes, ddof=1)\n")], {TRAINING, POSITIONS, MIXED, *LAST}),
        # onnxruntime's fifth output
        ([("now_var.astype(x.dtype)]\n", '(1 / np.sqrt(now_var + found["epsilon"])).astype(x.dtype)]\n')],
         {TRAINING, POSITIONS, MIXED, *LAST}),
        # everything in the type of x
        ([(f"new_{name}.astype({name}.dtype)", f"new_{name}.astype(x.dtype)") for name in ("mean", "var")],
         {MIXED, *LAST}),
        # one scale for each channel in both versions
        (
            [("    numbers = groups if version == 18 else channels\n",
              "    numbers = channels\n    s, b = (np.tile(v, channels // len(v)) for v in (s, b))\n")],
            {GROUPS, STASH, SHAPES, GROUP_ZOO, RARE},
        ),
        # computed in the type of x
        ([("rows = x.astype(np.float64).reshape", "rows = x.reshape")], {STASH}),
        # nothing refused
        (
            [("    if channels % groups:", "    if False:"),
             ("    if s.shape != (numbers,) or b.shape != (numbers,):", "    if False:")],
            {SHAPES},
        ),
        # outputs that are not wanted
        ([(" if name}", "}")], {RARE}),
    ],
)  # fmt: skip
def test_wrong_answers(lost: Any, changes: list[tuple[str, str]], expected: set[str]) -> None:
    assert lost(10, *changes) == expected


def specimens() -> list[tuple[checks.Case, int, Any, tuple[str, ...]]]:
    rng = np.random.default_rng(5)
    versions = (*checks.PUBLISHED[checks.BATCH], *checks.PUBLISHED[checks.GROUP])
    found = []
    for case, opset in checks.cases(rng, versions):
        data, outputs, _ = checks.specimen(case, opset, rng, odd=bool(rng.integers(2)))
        found.append((case, opset, data, outputs))
    return found


def test_the_published_versions_are_onnx() -> None:
    for operator, versions in checks.PUBLISHED.items():
        for version in versions:
            schema = onnx.defs.get_schema(operator, version, "")
            assert schema.since_version == version
            names = {**checks._defaults(operator, version), **checks._required_attributes(operator, version)}
            assert set(schema.attributes) == set(names)
            for name, attribute in schema.attributes.items():
                assert attribute.required == (name in checks._required_attributes(operator, version))
                if not attribute.required:
                    assert onnx.helper.get_attribute_value(attribute.default_value) == names[name]


def test_every_specimen_is_valid() -> None:
    """But for GroupNormalization 18, which the checker refuses as withdrawn."""
    for case, _, data, _ in specimens():
        if case.version != 18:
            onnx.checker.check_model(zoo.parsed(data))


def test_minorm_reads_the_zoo_as_the_lab_does(tmp_path: Any) -> None:
    import minorm as mn
    import minorm.onnx

    for number, (case, _, data, outputs) in enumerate(specimens()):
        path = tmp_path / f"{number}.onnx"
        path.write_bytes(bytes(data))
        answer = minorm.onnx.load(path)(mn.tensor(case.x))
        results = answer if isinstance(answer, tuple) else (answer,)
        right = [value for name, value in zip(outputs, case.right(), strict=False) if name]
        places = [place for place, name in enumerate(outputs) if name]
        for place, got, value in zip(places, results, right, strict=True):
            case.compare(place, got.numpy(), value, str(case))
