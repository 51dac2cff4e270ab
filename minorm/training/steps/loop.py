"""The training loop: forward, loss, backward and step for every batch. The rest of this package uses this loop."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, nullcontext
from typing import Any

import numpy as np

from minorm.data import DataLoader
from minorm.diagnosis.finite import NonFiniteLoss, reason
from minorm.distributed import DistributedDataParallel
from minorm.graph.grad_mode import no_grad
from minorm.nn import Module, accumulate_stats
from minorm.nn.utils import clip_grad_norm_
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor
from minorm.training.callbacks import Callback, Callbacks, CallbackState
from minorm.training.steps.batches import Batch, batches, count, device_of, ignored
from minorm.training.steps.divisor import samples
from minorm.training.steps.graphed import GraphedLoop
from minorm.training.steps.score import Score, judged

LOOP = {
    "model": "a Module, on any device",
    "loader": "batches (inputs, targets), as a DataLoader gives them",
    "loss_function": "a function from (outputs, targets) to one number: a mean or, with reduction='sum', a sum",
}


@documented(
    LOOP,
    optimizer="the optimizer of the model's parameters",
    scheduler="the scheduler of the learning rate, whose step() is called after every batch; None leaves the rate "
    "unchanged",
    after_step="a function that is called after every step with the score so far, for example to show the progress; "
    "None calls nothing",
    accumulate="the number of batches per step. A step uses the gradient of the joint loss of its batches, and "
    "updates the running statistics once. The last step of an epoch may have fewer batches",
    clip_grad="the largest norm that all gradients together may have, 0 for no limit",
    callbacks="a list of Callbacks, whose methods for epochs, steps and exceptions are called",
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
    callbacks: Iterable[Callback] = (),
) -> Score:
    """Train for one pass over the data (zero_grad, loss, backward, step for every batch), and return its Score.

    If the model is on a GPU, batches are moved there. All ranks of a DistributedDataParallel call this function
    together, each with its part of every batch, and each rank gets the score of all ranks.

    All batches of a step, on all ranks, give the loss and gradient of one joint batch. The loss of each batch is
    weighted by the divisor of its mean. The divisor is the sum of the class weights of all targets that are not
    `ignore_index`, or the number of samples if the function is not one of minorm's losses. If the divisors of a step
    are all 0, the step is left out.

    Raises NonFiniteLoss as soon as a loss is NaN or infinite, before the loss changes the parameters. The
    message says whether the inputs, the targets or the parameters have a NaN. Raises NonFiniteLoss too if the divisors
    of all steps are 0.

    Example:
        >>> model = nn.Linear(1, 1, bias=False)
        >>> loader = [(mn.tensor([[1.0], [2.0]]), mn.tensor([[3.0], [6.0]]))] * 50  # y = 3 x
        >>> score = mn.training.train_epoch(model, loader, nn.MSELoss(), mn.optim.SGD(model.parameters(), lr=0.2))
        >>> round(model.weight.item(), 3)
        3.0
    """
    told = Callbacks("train_epoch", callbacks, CallbackState(model))

    def follow(score: Score) -> None:
        told.after_step(score)
        if after_step is not None:
            after_step(score)

    with told.told_of_errors():
        told.tell("on_train_epoch_start")
        score = train_by(
            None,
            model,
            loader,
            loss_function,
            optimizer,
            scheduler,
            told.before_step,
            follow,
            accumulate=accumulate,
            clip_grad=clip_grad,
        )
        told.tell("on_train_epoch_end", score=score)
    return score


def train_by(
    graphed: GraphedLoop | None,
    model: Module,
    loader: Iterable[Any],
    loss_function: Any,
    optimizer: Any,
    scheduler: Any,
    before_step: Callable[[], None],
    after_step: Callable[[Score], None],
    *,
    accumulate: int,
    clip_grad: float,
) -> Score:
    """Train one epoch like `train_epoch`.

    If `graphed` is given, which was made for this model and optimizer, steps run as CUDA graphs.
    """
    model.train()
    parallel = model if isinstance(model, DistributedDataParallel) else None
    score = Score(1 if parallel is None else parallel.group.size)
    with closing(batches("train_epoch", model, loader, loss_function)) as given:
        # a batch may be empty where broken images were left out
        full = given if parallel is not None else (batch for batch in given if samples(batch.targets))
        for group in _groups(full, accumulate):
            before_step()
            if graphed is not None and len(group) == 1 and group[0].divisor != 0:
                graphed.step(group[0], score)
            else:
                _step(model, loss_function, optimizer, group, score, clip_grad)
            if scheduler is not None:
                scheduler.step()
            after_step(score)
    if parallel is not None:
        parallel.average_buffers()
        score.pool(parallel.group)
    _expect_targets(score, loss_function)
    return score


def _step(
    model: Module, loss_function: Any, optimizer: Any, group: list[Batch], score: Score, clip_grad: float
) -> None:
    """Take one step on the joint loss of the batches in `group`. If no target counts, change nothing."""
    backward: Any = _backward_together if isinstance(model, DistributedDataParallel) else _backward
    if backward(model, loss_function, optimizer, group, score):
        if clip_grad:
            clip_grad_norm_(model.parameters(), clip_grad)
        optimizer.step()


@documented(LOOP)
def evaluate(model: Module, loader: Iterable[Any], loss_function: Callable[[Tensor, Tensor], Tensor]) -> Score:
    """Run one pass over the data in evaluation mode, restore the model's mode, and return the Score.

    The score's loss is that of all data as one batch (see `train_epoch`), so it does not depend on the batch size. The
    accuracy is the share of targets that equal the class of the largest logit. If targets are masks, each pixel is a
    target. Targets that are the loss's `ignore_index` are left out. If targets are not classes, the accuracy is None.

    All ranks of a DistributedDataParallel call this function together, each with its part of the data, and each rank
    gets the score of all ranks. A DataLoader without shard= and sampler= reads all data, not a part. In this case each
    rank gets its own score, and rank 0 may call this function alone.

    Example:
        >>> loader = [(mn.tensor([[0.0, 1.0], [1.0, 0.0]]), mn.tensor([1, 1]))]
        >>> mn.training.evaluate(nn.Identity(), loader, nn.CrossEntropyLoss()).accuracy
        0.5
    """
    before, score = model.training, Score()
    model.eval()
    try:
        with no_grad(), closing(batches("evaluate", model, loader, loss_function)) as given:
            for batch in given:
                if batch.targets.ndim and not batch.targets.shape[0]:
                    continue  # an empty part: this rank got no sample
                outputs = model(batch.inputs)
                loss = loss_function(outputs, batch.targets)
                _count(score, model, loss_function, batch, outputs, loss)
    finally:
        model.train(before)
    if isinstance(model, DistributedDataParallel) and _is_a_part(loader):
        score.pool(model.group)
    _expect_targets(score, loss_function)
    return score


def _is_a_part(loader: Iterable[Any]) -> bool:
    """Return whether each rank's loader reads only a part of the data, so that the ranks' scores must be combined."""
    if not isinstance(loader, DataLoader):
        return True
    return loader.shard[1] > 1 or loader.order.given is not None or loader.batch_sampler is not None


@documented(LOOP, images="a batch of inputs, on any device")
def predict(model: Module, images: Tensor) -> Tensor:
    """Return model(images) in evaluation mode and without a graph; then restore the model's mode.

    Example:
        >>> mn.training.predict(nn.ReLU(), mn.tensor([-1.0, 2.0]))
        tensor([0., 2.])
    """
    before = model.training
    model.eval()
    try:
        with no_grad():
            result: Tensor = model(images.to(device_of(model)))
    finally:
        model.train(before)
    return result


def _groups(given: Iterator[Batch], size: int) -> Iterator[list[Batch]]:
    """Yield lists of `size` batches. The last list may be shorter."""
    while group := list(itertools.islice(given, size)):
        yield group


def _backward(model: Module, loss_function: Any, optimizer: Any, group: list[Batch], score: Score) -> bool:
    """Compute the gradients of the joint loss of the batches in `group`. If no target counts, return False."""
    divisors = [1.0 if batch.divisor is None else batch.divisor for batch in group]
    shares = _shares(np.array(divisors), group[0].divisor is None)
    together = accumulate_stats(model) if len(group) > 1 else nullcontext()
    with together:
        for number, batch in enumerate(group):
            outputs = model(batch.inputs)
            loss = loss_function(outputs, batch.targets)
            _count(score, model, loss_function, batch, outputs, loss)
            if number == 0:
                optimizer.zero_grad()
            share = float(shares[number])
            if share:
                (loss if share == 1 else loss * share).backward()
    return bool(shares.any())


def _shares(divisors: Any, summed: bool) -> Any:
    """Return the weight of each part's loss in the joint loss. All weights are 0 if no target counts."""
    return np.ones(len(divisors)) if summed else divisors / (divisors.sum() or 1.0)


def _count(score: Score, model: Module, loss_function: Any, batch: Batch, outputs: Any, loss: Tensor) -> None:
    count(score, model, loss_function, batch, loss, judged(outputs, batch.targets, ignored(loss_function)))


def _expect_targets(score: Score, loss_function: Any) -> None:
    """Raise NonFiniteLoss if there were images, but no target that counted."""
    if score.nothing_counts:
        why = f"every target of this batch is ignore_index={getattr(loss_function, 'ignore_index', -100)}"
        if getattr(loss_function, "weight", None) is not None:
            why += ", or of a class whose weight is 0"
        raise NonFiniteLoss(
            f"the loss is nan after {score.images:,} images of this epoch; {why}, so the loss is a mean over nothing; "
            "expected at least one target that counts",
            rank=0,
        )


def _backward_together(
    model: DistributedDataParallel, loss_function: Any, optimizer: Any, group: list[Batch], score: Score
) -> bool:
    """Do the work of `_backward` if each rank has a part of every batch. Gradients are sent with the last batch."""
    shares = np.ones(1)
    if len(group) > 1:
        mine = np.array([1.0 if batch.divisor is None else batch.divisor for batch in group])
        shares = _shares(model.group.all_reduce(mine, label="the targets of a step"), group[0].divisor is None)
    together = accumulate_stats(model) if len(group) > 1 else nullcontext()
    counts = False
    with together:
        for number, batch in enumerate(group):
            outputs = model(batch.inputs)
            loss = loss_function(outputs, batch.targets)
            if number == 0:
                optimizer.zero_grad()
            with model.no_sync() if number < len(group) - 1 else nullcontext():
                loss = _whole_loss(model, loss_function, loss, batch, float(shares[number]))
            counts = counts or model.counted > 0
            _count(score, model, loss_function, batch, outputs, loss)
    return counts


def _whole_loss(model: DistributedDataParallel, loss_function: Any, loss: Tensor, batch: Batch, share: float) -> Tensor:
    """Compute all ranks' joint loss and `share` times its gradients; report a rank's non-finite loss on all ranks."""
    ranks = model.group.size
    try:
        if batch.divisor is None:  # a sum: multiplied by the ranks, since backward takes the mean over them
            return model.backward(loss * ranks, 1)
        if not 0 < share < 1:
            return model.backward(loss, batch.divisor)
        return model.backward(loss * share, batch.divisor) / share
    except NonFiniteLoss as error:
        own = error.rank == model.group.rank
        mine = reason(model, batch.inputs, batch.targets, ignored(loss_function)) if own else ""
        said = model.group.all_gather_text(mine, "why a loss is no number")
        raise NonFiniteLoss("; ".join([str(error), *filter(None, said)]), error.rank) from None
