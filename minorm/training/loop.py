"""The training loop: forward, loss, backward, step, for every batch. The rest of this package stands around it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np

from minorm.data import DataLoader
from minorm.diagnosis.finite import NonFiniteLoss, reason
from minorm.distributed import DistributedDataParallel
from minorm.graph.grad_mode import no_grad
from minorm.nn import Module, accumulate_stats
from minorm.nn.utils import clip_grad_norm_
from minorm.support.argument_errors import kind_of
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor
from minorm.training.divisor import divisor, samples
from minorm.training.score import Score

LOOP = {
    "model": "a Module, on any device",
    "loader": "batches (inputs, targets), as a DataLoader gives them",
    "loss_function": "gives a number for (outputs, targets): a mean, or with reduction='sum' a sum",
}


@documented(
    LOOP,
    optimizer="of the model's parameters",
    scheduler="of the learning rate, which moves on after every batch; None leaves the rate",
    after_step="called after every step with the score so far: to show progress, to record; None calls nothing",
    accumulate="batches a step: its gradient is that of the loss of them all, and running statistics move "
    "once. The last step of an epoch may have fewer",
    clip_grad="the largest norm that all gradients together may have, 0 for no limit",
)
def train_epoch(
    model: Module,
    loader: Iterable[Any],
    loss_function: Callable[[Tensor, Tensor], Tensor],
    optimizer: Any,
    scheduler: Any = None,
    after_step: Callable[[Score], None] | None = None,
    *,
    accumulate: int = 1,
    clip_grad: float = 0.0,
) -> Score:
    """One pass over the training data: zero_grad, loss, backward, step for every batch; returns its Score.

    The model may be on a GPU; batches are brought there. Of a DistributedDataParallel all ranks call this together,
    each with its part of every batch, and get the score of all.

    The loss and the gradient of several parts are those of the whole. Each part counts by what its mean was divided by:
    its targets without those that are `ignore_index`, by their class weights; with a function that is none of minorm's
    losses, its samples. A step in which no target counts is left out.

    NonFiniteLoss as soon as a loss is NaN or infinite,
    before it reaches the parameters; it says whether the inputs, the targets or the parameters hold the NaN. Also where
    no target of all batches counts.

    Example:
        >>> model = nn.Linear(1, 1, bias=False)
        >>> loader = [(mn.tensor([[1.0], [2.0]]), mn.tensor([[3.0], [6.0]]))] * 50  # y = 3 x
        >>> score = mn.training.train_epoch(model, loader, nn.MSELoss(), mn.optim.SGD(model.parameters(), lr=0.2))
        >>> round(model.weight.item(), 3)
        3.0
    """
    model.train()
    parallel = model if isinstance(model, DistributedDataParallel) else None
    score = Score(1 if parallel is None else parallel.group.size)
    given = _batches("train_epoch", model, loader)
    if parallel is None:  # a batch may be empty where broken images were left out
        given = (batch for batch in given if samples(batch[1]))
    for batches in _groups(given, accumulate):
        if parallel is None:
            counts = _backward(model, loss_function, optimizer, batches, score)
        else:
            counts = _backward_together(parallel, loss_function, optimizer, batches, score)
        if counts and clip_grad:
            clip_grad_norm_(model.parameters(), clip_grad)
        if counts:
            optimizer.step()
        if scheduler is not None:
            scheduler.step()
        if after_step is not None:
            after_step(score)
    if parallel is not None:
        parallel.average_buffers()
        score.pool(parallel.group)
    _expect_targets(score, loss_function)
    return score


@documented(LOOP)
def evaluate(model: Module, loader: Iterable[Any], loss_function: Callable[[Tensor, Tensor], Tensor]) -> Score:
    """The Score of a pass in evaluation mode: loss and accuracy; the model is left in the mode it was in.

    The loss is that of all data at once, however they are cut into batches, see `train_epoch`.
    The accuracy is the share of targets that are the largest logit's class, each pixel's where targets are masks, those
    that are the loss's `ignore_index` left out; None where targets are no classes. Of a DistributedDataParallel all
    ranks call this together, each with its part, and get the score of all. A DataLoader without shard= and sampler= is
    no part but the whole: what each rank then gets is its own score, and rank 0 may call this alone.

    Example:
        >>> loader = [(mn.tensor([[0.0, 1.0], [1.0, 0.0]]), mn.tensor([1, 1]))]
        >>> mn.training.evaluate(nn.Identity(), loader, nn.CrossEntropyLoss()).accuracy
        0.5
    """
    before, score = model.training, Score()
    model.eval()
    try:
        with no_grad():
            for inputs, targets in _batches("evaluate", model, loader):
                if targets.ndim and not targets.shape[0]:
                    continue  # the part of a rank for which no sample is left
                outputs = model(inputs)
                loss = loss_function(outputs, targets)
                _add(score, model, loss_function, inputs, outputs, targets, loss)
    finally:
        model.train(before)
    if isinstance(model, DistributedDataParallel) and _is_a_part(loader):
        score.pool(model.group)
    _expect_targets(score, loss_function)
    return score


def _is_a_part(loader: Iterable[Any]) -> bool:
    """Whether each rank's loader holds a part of the data. A rank that reads all of it needs no other's score."""
    if not isinstance(loader, DataLoader):
        return True
    return loader.shard[1] > 1 or loader.order.given is not None or loader.batch_sampler is not None


@documented(LOOP, images="a batch of inputs, wherever they are")
def predict(model: Module, images: Tensor) -> Tensor:
    """model(images) in evaluation mode, without a graph; the model is left in the mode it was in.

    Example:
        >>> mn.training.predict(nn.ReLU(), mn.tensor([-1.0, 2.0]))
        tensor([0., 2.])
    """
    before = model.training
    model.eval()
    try:
        with no_grad():
            result: Tensor = model(images.to(_device(model)))
    finally:
        model.train(before)
    return result


def _groups(batches: Iterator[Any], size: int) -> Iterator[list[Any]]:
    """Lists of `size` batches; the last one may be shorter."""
    while group := list(itertools.islice(batches, size)):
        yield group


def _backward(model: Module, loss_function: Any, optimizer: Any, batches: list[Any], score: Score) -> bool:
    """The gradients of the loss of these batches as a whole; False where none of their targets counts."""
    divisors = [divisor(loss_function, targets) for _, targets in batches]
    shares = _shares(np.array([1.0 if part is None else part for part in divisors]), divisors[0] is None)
    together = accumulate_stats(model) if len(batches) > 1 else nullcontext()
    with together:
        for number, (inputs, targets) in enumerate(batches):
            outputs = model(inputs)
            loss = loss_function(outputs, targets)
            _add(score, model, loss_function, inputs, outputs, targets, loss)
            if number == 0:
                optimizer.zero_grad()
            share = float(shares[number])
            if share:
                (loss if share == 1 else loss * share).backward()
    return bool(shares.any())


def _shares(divisors: Any, summed: bool) -> Any:
    """What each part's loss weighs in the loss of the whole; zeros where nothing counts."""
    return np.ones(len(divisors)) if summed else divisors / (divisors.sum() or 1.0)


def _add(
    score: Score, model: Module, loss_function: Any, inputs: Tensor, outputs: Any, targets: Tensor, loss: Tensor
) -> None:
    """Count a batch; where its loss is no number, say why."""
    ignore_index = getattr(loss_function, "ignore_index", None)
    part = divisor(loss_function, targets)
    try:
        score.add(loss, outputs, targets, ignore_index, divisor=part, summed=part is None)
    except NonFiniteLoss as error:
        raise NonFiniteLoss(f"{error}; {reason(model, inputs, targets, ignore_index)}") from None


def _expect_targets(score: Score, loss_function: Any) -> None:
    """Raise NonFiniteLoss where there were images, but no target that counts."""
    if score.nothing_counts:
        why = f"every target of this batch is ignore_index={getattr(loss_function, 'ignore_index', -100)}"
        if getattr(loss_function, "weight", None) is not None:
            why += ", or of a class whose weight is 0"
        raise NonFiniteLoss(
            f"the loss is nan after {score.images:,} images of this epoch; {why}: the mean of no loss is nan; "
            "expected a target that counts",
            rank=0,
        )


def _backward_together(
    model: DistributedDataParallel, loss_function: Any, optimizer: Any, batches: list[Any], score: Score
) -> bool:
    """The same where each rank has a part of every batch. Gradients travel once, with the last batch."""
    divisors = [divisor(loss_function, targets) for _, targets in batches]
    shares = np.ones(1)
    if len(batches) > 1:
        mine = np.array([1.0 if part is None else part for part in divisors])
        shares = _shares(model.group.all_reduce(mine, label="the targets of a step"), divisors[0] is None)
    together = accumulate_stats(model) if len(batches) > 1 else nullcontext()
    counts = False
    with together:
        for number, (inputs, targets) in enumerate(batches):
            outputs = model(inputs)
            loss = loss_function(outputs, targets)
            if number == 0:
                optimizer.zero_grad()
            with model.no_sync() if number < len(batches) - 1 else nullcontext():
                share = float(shares[number])
                loss = _whole_loss(model, loss_function, loss, inputs, targets, divisors[number], share)
            counts = counts or model.counted > 0
            _add(score, model, loss_function, inputs, outputs, targets, loss)
    return counts


def _whole_loss(
    model: DistributedDataParallel,
    loss_function: Any,
    loss: Tensor,
    inputs: Tensor,
    targets: Tensor,
    part: float | None,
    share: float,
) -> Tensor:
    """The whole batch's loss, and `share` times its gradients; where a rank's is no number, say on all ranks why."""
    ranks = model.group.size
    try:
        if part is None:  # a sum: the mean of as many times it as there are ranks
            return model.backward(loss * ranks, 1)
        if not 0 < share < 1:
            return model.backward(loss, part)
        return model.backward(loss * share, part) / share
    except NonFiniteLoss as error:
        ignore_index = getattr(loss_function, "ignore_index", None)
        mine = reason(model, inputs, targets, ignore_index) if error.rank == model.group.rank else ""
        said = model.group.all_gather_text(mine, "why a loss is no number")
        raise NonFiniteLoss("; ".join([str(error), *filter(None, said)]), error.rank) from None


def _batches(operation: str, model: Module, loader: Iterable[Any]) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches of the loader, which are on the CPU, where the model is."""
    device = _device(model)
    for batch in loader:
        if not _is_pair(batch):
            raise TypeError(
                f"{operation}: a batch is {_form(batch)}; expected (inputs, targets), two Tensors; "
                "for other batches write a loop of your own"
            )
        inputs, targets = batch
        yield inputs.to(device), targets.to(device)


def _is_pair(batch: Any) -> bool:
    return isinstance(batch, (tuple, list)) and len(batch) == 2 and all(isinstance(part, Tensor) for part in batch)


def _form(batch: Any) -> str:
    """The batch in words: `a dict with the keys ['image', 'mask']`, `a tuple of Tensor, dict`."""
    if isinstance(batch, Mapping):
        return f"a {kind_of(batch)} with the keys {list(batch)}"
    if isinstance(batch, (tuple, list)):
        return f"a {kind_of(batch)} of {', '.join(map(kind_of, batch)) or 'nothing'}"
    return f"a {kind_of(batch)}"


def _device(model: Module) -> str:
    return next((p.device for p in model.parameters()), "cpu")
