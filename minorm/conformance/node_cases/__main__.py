"""Write the cases: `python -m minorm.conformance.node_cases DIR`."""

from __future__ import annotations

import argparse

from minorm.conformance.node_cases.collecting import collect
from minorm.conformance.node_cases.writing import write


def main(words: list[str] | None = None) -> None:
    """Write the cases; if this fails, exit with a message."""
    parser = argparse.ArgumentParser(
        prog="python -m minorm.conformance.node_cases",
        description="Write test cases of normalizations as onnx's backend tests have them: model.onnx, inputs and "
        "outputs, their Python sources, and a README.",
    )
    parser.add_argument("folder", metavar="DIR", help="a new folder, or an empty one")
    args = parser.parse_args(words)
    cases = collect()
    try:
        write(cases, args.folder)
    except OSError as error:
        raise SystemExit(f"node_cases: {error}") from None


if __name__ == "__main__":
    main()
