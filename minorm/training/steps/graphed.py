"""Run the steps of a loop on a GPU as two CUDA graphs. The host checks the loss between the two graphs.

The first graph computes the outputs and the loss; the second one runs zero_grad, backward and the optimizer's step. So
a loss that is NaN does not reach the parameters. Batches whose shape differs from that of the first batch, and steps
that cannot be captured, run eagerly.
"""

from __future__ import annotations

from typing import Any

from minorm.cuda.graphed_step import GraphedStep
from minorm.nn import Module
from minorm.nn.utils import clip_grad_norm_
from minorm.tensor.tensor import Tensor
from minorm.training.steps.batches import Batch, count, ignored
from minorm.training.steps.score import Score, judged


class GraphedLoop:
    """Runs a loop's step on a batch as CUDA graphs, which all epochs reuse.

    model          a Module on a GPU
    loss_function  a function from (outputs, targets) to one number
    optimizer      the optimizer of the model's parameters
    clip_grad      the largest norm that all gradients together may have; 0 means no limit
    """

    def __init__(self, model: Module, loss_function: Any, optimizer: Any, clip_grad: float) -> None:
        self.model, self.loss_function, self.optimizer, self.clip_grad = model, loss_function, optimizer, clip_grad
        self._step: GraphedStep | None = None
        self._loss: Any = None  # the loss of a forward pass whose backward pass has not yet run

    def step(self, batch: Batch, score: Score) -> None:
        """Run a whole step and add it to the score; raise NonFiniteLoss before the parameters would change."""
        if self._step is None:
            parts = self._forward, self._backward
            self._step = GraphedStep(parts, [batch.inputs, batch.targets], name="training on a GPU")

        def look(found: tuple[Tensor, Tensor | None]) -> None:
            count(score, self.model, self.loss_function, batch, *found)

        self._step.run([batch.inputs, batch.targets], look)

    def _forward(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor | None]:
        outputs = self.model(inputs)
        self._loss = self.loss_function(outputs, targets)
        return self._loss, judged(outputs, targets, ignored(self.loss_function))

    def _backward(self) -> None:
        loss, self._loss = self._loss, None
        self.optimizer.zero_grad()
        loss.backward()
        if self.clip_grad:
            clip_grad_norm_(self.model.parameters(), self.clip_grad)
        self.optimizer.step()
