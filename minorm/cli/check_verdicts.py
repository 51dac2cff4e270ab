"""Finds out whether minorm runs a model, whether the checker accepts the model, and whether onnxruntime agrees.

The inputs of the model are guessed. If the model fails on a guess, the guess may be at fault, so the next guess is
tried. If minorm and onnxruntime both fail on every guess, the verdict is that nothing was run.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import minorm as mn
from minorm.cli.terminal import words
from minorm.cli.views.check_report import Verdict
from minorm.support.nested import mapped

if TYPE_CHECKING:
    from minorm.onnx.checking.inspection import Inspection
    from minorm.onnx.checking.profiling import Seen
    from minorm.onnx.exporting.examples import Guess

AGAIN = 3  # other sizes to try in onnxruntime, if it refuses one that minorm takes
MOST = 24  # sizes to try in onnxruntime, if minorm takes none of them


@dataclass
class Judged:
    """The results of `judge`: the verdicts, and details of the run in minorm.

    size   the shapes of the inputs with which minorm ran the model; {} if minorm did not run the model
    seen   measurements of each node in this run
    """

    verdicts: list[Verdict]
    size: dict[str, tuple[int, ...]]
    seen: Seen


def judge(found: Inspection, path: str, guess: Guess, seconds: float, device: str = "cpu") -> Judged:
    """Run the model in minorm on `device` and in onnxruntime, and check the file with the onnx checker.

    Return the three verdicts, and a comparison of the outputs if both runs succeeded.
    """
    from minorm.onnx.checking import sandbox, verification
    from minorm.onnx.exporting import examples

    how = verification.how_to_check(found.proto)
    if found.module is not None:
        found.module.to(device=device)
    accepted = _Accepted(found, guess, device)
    args = next(accepted, None)
    fed = args
    if args is None and found.inputs and (found.module is None or not examples.is_guessed(found.inputs, guess)):
        fed = examples.exact(found.inputs, guess)
    answer = sandbox.ask(path, _arrays(found, fed), checker=how, seconds=seconds)
    checker = _checker(how, answer)
    if not answer["checker"].passed and how:  # the checker refused the file; onnxruntime may still take it
        answer = sandbox.ask(path, _arrays(found, fed), checker="", seconds=seconds)
    for other in islice(accepted, AGAIN) if args is not None and _refuses(answer) else ():
        again = sandbox.ask(path, _arrays(found, other), checker="", seconds=seconds)
        if again.outputs is not None:
            args, answer = other, again
            break
    results, ours, seen = _run(found, args, device) if args is not None else (None, accepted.verdict(path, seconds), {})
    if found.module is not None:
        found.module.to(device="cpu")
    verdicts = [ours, checker, _runtime(answer, fed is not None)]
    if answer.outputs is not None and results is not None:
        verdicts.append(_comparison(found, answer.outputs, results))
    if (
        checker.state == "FAILED"
        and answer["load"].passed
        and all(v.state != "FAILED" for v in verdicts if v != checker)
    ):
        verdicts[1] = Verdict("checker", "-", f"{checker.text} But minorm and onnxruntime both load the model")
    names = [entry.name for entry in found.inputs]
    size = {} if args is None else dict(zip(names, (x.shape for x in args), strict=True))
    return Judged(verdicts, size, seen)


def _refuses(answer: Any) -> bool:
    return answer.failure is not None and answer.failure[0] == "run"


def _arrays(found: Inspection, args: Any) -> dict[str, Any] | None:
    names = [entry.name for entry in found.inputs]
    return None if args is None else {name: value.array for name, value in zip(names, args, strict=True)}


class _Accepted(Iterator[Any]):
    """Iterates over the guessed inputs on which minorm runs."""

    def __init__(self, found: Inspection, guess: Guess, device: str) -> None:
        from minorm.onnx.exporting import examples

        self.found, self.guess, self.device = found, guess, device
        self.refused: list[Any] = []
        self.error: Exception | None = None  # why the first guess was refused
        self.guesses = examples.guesses(found.inputs, guess) if found.module is not None else iter(())

    def __next__(self) -> Any:
        from minorm.onnx.exporting import examples

        while True:
            try:
                args = next(self.guesses)
            except ValueError as error:  # an input has no shape
                self.error = self.error or error
                raise StopIteration from None
            assert self.found.module is not None
            why = examples.fails(self.found.module, _on(self.device, args))
            if why is None:
                return args
            self.error = self.error or why
            self.refused.append(args)

    def verdict(self, path: str, seconds: float) -> Verdict:
        """Return minorm's verdict on a model that minorm could not run with any guess."""
        from minorm.onnx.checking import sandbox
        from minorm.onnx.exporting import examples

        if self.found.module is None:
            refused = f"does not run {len(self.found.unsupported)} of {len(self.found.rows)} nodes"
            return Verdict("minorm", "FAILED", refused if self.found.unsupported else self.found.error)
        if not examples.is_guessed(self.found.inputs, self.guess):
            return Verdict("minorm", "FAILED", str(self.error))
        sizes = [{"arrays": _arrays(self.found, args)} for args in self.refused[:MOST]]
        trials = sandbox.try_all(path, [sizes], seconds=seconds) if sizes else []
        if isinstance(trials, list) and trials and trials[0].taken is not None:
            taken = words.shapes(
                {n: x.shape for n, x in (_arrays(self.found, self.refused[trials[0].taken]) or {}).items()}
            )
            return Verdict("minorm", "FAILED", f"fails on inputs on which onnxruntime runs, {taken}: {self.error}")
        return Verdict(
            "minorm", "-", f"loads the model, but found no input size on which it runs ({self.error}). Give a size "
            "with --shape, or the value of an input with --input",
        )  # fmt: skip


def _run(found: Inspection, args: Any, device: str) -> tuple[Any, Verdict, Seen]:
    from minorm.onnx.checking import profiling
    from minorm.onnx.exporting.runs import untouched

    model = found.module
    assert model is not None
    with mn.no_grad(), untouched(model, None), profiling.watched() as seen:
        there = _on(device, args)
        start = time.perf_counter()
        results = _on("cpu", model(*there))
        took = time.perf_counter() - start
    results = results if isinstance(results, tuple) else (results,)
    given, made = (
        words.shapes({name: x.shape for name, x in zip(names, tensors, strict=True) if isinstance(x, mn.Tensor)})
        for names, tensors in ((model.input_names, args), (model.output_names, results))
    )
    where = "" if device == "cpu" else f" on {device}"
    text = f"runs all {len(found.rows)} nodes: {given} -> {made or 'lists'}, in {_time(took)}{where}"
    compared = all(isinstance(y, mn.Tensor) for y in results)
    return results if compared else None, Verdict("minorm", "ok", text), seen


def _on(device: str, value: Any) -> Any:
    """Return the Tensor, or a tuple or list of Tensors, on a device."""
    return mapped(value, mn.Tensor, lambda tensor: tensor.to(device))


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def _checker(how: str, answer: Any) -> Verdict:
    from minorm.onnx.checking import sandbox

    name = sandbox.version("onnx")
    if not how:
        return Verdict("checker", "-", f"not run: {name} refuses GroupNormalization 18, although it is valid")
    if not answer["checker"].passed:
        return Verdict("checker", "FAILED", answer["checker"].text)
    return Verdict("checker", "ok", f"valid ({name})" if how == "full" else f"valid, shapes not inferred ({name})")


def _runtime(answer: Any, fed: bool) -> Verdict:
    from minorm.onnx.checking import sandbox

    if answer.failure is not None:
        return Verdict("onnxruntime", "FAILED", answer.failure[1].text)
    if not answer["load"].passed:
        return Verdict("onnxruntime", "-", answer["load"].text)
    name = sandbox.version("onnxruntime")
    if not fed:
        return Verdict(
            "onnxruntime", "-", f"{name} loads the model, but did not run it: give the free axes a length with --shape"
        )
    return Verdict("onnxruntime", "ok", f"{name} runs the model in {_time(answer['run'].seconds)}")


def _comparison(found: Inspection, outputs: Any, results: Any) -> Verdict:
    from minorm.onnx.checking import verification
    from minorm.onnx.graph.errors import VerifyError

    module = found.module
    if module is not None and any(
        type(layer).__name__ == "Dropout" and layer.training and not layer.frozen for layer in module.modules()
    ):
        return Verdict("agreement", "-", "not compared: dropout is random")
    try:
        worst, relative = verification.compare(found.proto, outputs, results)
    except VerifyError as error:
        return Verdict("agreement", "FAILED", str(error).removeprefix("verify: "))
    names = verification.wrong_in_onnxruntime(found.proto) & {entry.name for entry in found.proto.graph.output}
    but = f"; not compared: {', '.join(sorted(names))}, which onnxruntime gives as 1/std" if names else ""
    return Verdict("agreement", "ok", f"largest difference {worst:.2g}, relative to max(1, |y|) {relative:.2g}{but}")
