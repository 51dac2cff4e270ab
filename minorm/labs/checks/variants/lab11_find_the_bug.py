"""Lab 11 varies the smallest size in a distance, the simplest number of a case, and the six suspects."""

from __future__ import annotations

from minorm.labs.varied.choices import Variants, kinds, numbers

ONE = "np.ones((1, 1, 1, 1))"
LP, LRN, MVN = "LpNormalization", "LRN", "MeanVarianceNormalization"
OPERATORS = {"A": LP, "B": LP, "C": LRN, "D": LRN, "E": MVN, "F": MVN}
SHOWN = {  # of each series, the rest of a call that shows the suspect
    "": {
        "A": "[0]",
        "B": "[[1, 1]], axis=0",
        "C": "two.reshape(1, 2, 1, 1) + 1, size=2, alpha=1.0",
        "D": f"{ONE}, size=3, alpha=1.0",
        "E": "two.reshape(2, 1, 1, 1)",
        "F": "far",
    },
    "2": {
        "A": "[-1]",
        "B": "[1, 1], p=1",
        "C": f"{ONE}, size=1, alpha=1.0, beta=0.5",
        "D": f"{ONE}, size=1, alpha=1.0, bias=2.0",
        "E": "4 * two.reshape(2, 1, 1, 1)",
        "F": "2 * two.reshape(2, 1, 1, 1)",
    },
    "3": {
        "A": "[2]",
        "B": "[[1], [1]]",
        "C": f"2 * {ONE}, size=1, alpha=1.0",
        "D": "np.ones((1, 2, 1, 1)), size=1, alpha=1.0",
        "E": "two.reshape(1, 2, 1, 1), axes=[1]",
        "F": ONE,
    },
}
LARGE = {  # attributes and numbers of the large cases that the picture begins with
    "": {
        "A": ('{"axis": 1}', '{"scale": 0.0}'),
        "B": ('{"axis": 1}', "{}"),
        "C": ('{"size": 4, "alpha": 1.0}', "{}"),
        "D": ('{"size": 3, "alpha": 1.0}', "{}"),
        "E": ("{}", "{}"),
        "F": ("{}", '{"offset": 20_000.0}'),
    },
    "2": {
        "A": ('{"axis": 1}', "{}"),
        "B": ('{"axis": 1, "p": 1}', "{}"),
        "C": ('{"size": 3, "alpha": 1.0, "beta": 0.5}', "{}"),
        "D": ('{"size": 3, "alpha": 1.0, "bias": 2.0}', "{}"),
        "E": ("{}", "{}"),
        "F": ("{}", "{}"),
    },
    "3": {
        "A": ('{"axis": 1}', "{}"),
        "B": ('{"axis": 1}', "{}"),
        "C": ('{"size": 3, "alpha": 1.0}', "{}"),
        "D": ('{"size": 4, "alpha": 1.0}', "{}"),
        "E": ('{"axes": [1]}', "{}"),
        "F": ("{}", "{}"),
    },
}
FEWEST = {
    "": {"A": 1, "B": 2, "C": 2, "D": 1, "E": 2, "F": 2},
    "2": {"A": 1, "B": 2, "C": 1, "D": 1, "E": 2, "F": 2},
    "3": {"A": 1, "B": 2, "C": 1, "D": 2, "E": 2, "F": 1},
}


def _series_texts(series: str) -> tuple[str, ...]:
    """Return the pieces of the lab's text for a series of suspects.

    The suspects' names end in the number of the series.
    """
    rows = [f"| {left}{series} | {OPERATORS[left]} | | {right}{series} | {OPERATORS[right]} |" for left, right in
            ("AD", "BE", "CF")]  # fmt: skip
    planted = [
        f'"{name}{series}": oracles.case("{OPERATORS[name]}", 13, {rest}),' for name, rest in SHOWN[series].items()
    ]
    large = [
        f'"{name}{series}": ("{OPERATORS[name]}", {said}, {scaled}),' for name, (said, scaled) in LARGE[series].items()
    ]
    plain = not series
    guess = "C gets windows of size 4. Can its case become as small as your own case for C?"
    windows = (
        "C keeps three elements, because its windows have size 4. Your own case for C needs only two elements with"
    )
    return (
        f'`oracles.suspect("A{series}")`',
        f'{{"A{series}": case, ...}}',
        guess if plain else "Can each case become as small as your own?",
        f"{windows} windows of size 2. So try small attributes too:" if plain else "Try small attributes too:",
        f"each suspect A{series} to F{series}.",
        *rows,
        *planted,
        *large,
    )


V = Variants(
    "lab11_find_the_bug",
    floor=numbers(
        "the smallest divisor of an error in task 11.1",
        ("1", "0.5", "2", "5"),
        "max({}, max |right|)",
        "size = max({}, np.nanmax(np.abs(b)))",
    ),
    simple=numbers(
        "the simple number beside 0 in task 11.3",
        ("1", "2", "3", "5"),
        "replace an element by 0, by {}, or by a whole number.",
        "for simple in (0, {}, np.rint(x[place])):",
        "if (now not in (0, {}) and now != simple) or (now == {} and simple == 0):",
    ),
    series=kinds("the series of the suspects in task 11.4", {series: _series_texts(series) for series in SHOWN}),
)
