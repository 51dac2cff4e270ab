"""`python -m minorm.conformance.node_cases DIR`: write the cases."""

from __future__ import annotations

import argparse
import sys

from minorm.conformance.node_cases.collecting import collect
from minorm.conformance.node_cases.writing import write


def main(words: list[str] | None = None) -> int:
    """Returns the exit code."""
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
        sys.stderr.write(f"node_cases: {error}\n")
        return 1
    sys.stdout.write(f"{args.folder}: {len(cases)} cases\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
