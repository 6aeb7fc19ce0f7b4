"""The Universal Transformer (Dehghani et al. 2019): one layer at every depth, with adaptive halting per token."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from synthattn.layers.positions import sinusoid
from synthattn.models.block import Block
from synthattn.models.stack import OutputCollector, Stack
from synthattn.shapes import Bool, Float
from synthattn.tracing import is_unreadable


class Halting(nn.Module):
    """Adaptive computation time (Graves 2016), as in the appendix of the paper.

    In each step, a token's probability of stopping grows by ``p = sigmoid(w x + b)``. Once it exceeds the threshold,
    the token stops, and its remainder is one minus the probability before this step. In the result, the state after
    each step has the weight p, or the remainder in the last step.
    """

    def __init__(self, d_model: int, threshold: float) -> None:
        super().__init__()
        self.threshold = threshold
        self.unit = nn.Linear(d_model, 1)

    def reset_parameters(self) -> None:
        # Positive, as in the authors' code: at the start of training, tokens stop early.
        nn.init.ones_(self.unit.bias)

    def start(self, x: Tensor) -> "HaltingState":
        zero = x.new_zeros(x.shape[:-1])
        return HaltingState(self, zero, zero, zero, torch.zeros_like(x))


class HaltingState:
    """Probability, remainder, number of steps and result of each token so far."""

    def __init__(self, halting: Halting, probability: Tensor, remainder: Tensor, steps: Tensor, result: Tensor) -> None:
        self.halting = halting
        self.probability, self.remainder, self.steps, self.result = probability, remainder, steps, result

    def decide(self, x: Float[Tensor, "batch length d_model"]) -> Float[Tensor, "batch length"]:
        """Return the weight of the state after this step in the result."""
        p = self.halting.unit(x).squeeze(-1).sigmoid()
        running = self.probability < 1.0
        reached = self.probability + p * running
        stops = running & (reached > self.halting.threshold)
        continues = running & ~stops
        self.probability = self.probability + p * continues
        self.remainder = self.remainder + stops * (1.0 - self.probability)
        self.probability = self.probability + stops * self.remainder
        self.steps = self.steps + running
        return p * continues + stops * self.remainder

    def add(self, x: Tensor, weight: Tensor) -> None:
        self.result = x * weight.unsqueeze(-1) + self.result * (1.0 - weight.unsqueeze(-1))

    def done(self) -> bool:
        return bool((self.probability >= 1.0).all())

    def cost(self, padding: Bool[Tensor, "batch length"] | None) -> Float[Tensor, ""]:
        """Return the mean of steps plus remainder over all tokens."""
        cost = self.steps + self.remainder
        cost = cost.to(torch.promote_types(cost.dtype, torch.float32))  # half precision cannot count a batch's tokens
        if padding is None:
            return cost.mean()
        is_token = ~padding[:, -cost.shape[1] :]
        return (cost * is_token).sum() / is_token.sum().clamp(min=1)


class UniversalStack(Stack):
    """A stack that applies one block at every depth. Embeddings of position and depth are added before each step."""

    def __init__(self, block: Block, depth: int, halting: Halting | None, **parts: Any) -> None:
        super().__init__([block], **parts)
        self.depth = depth
        self.halting = halting

    @property
    def layers(self) -> list[Block]:
        return super().layers * self.depth

    def run_layers(
        self,
        x: Tensor,
        signal: Tensor | None,
        padding: Tensor | None,
        run: Callable[[Tensor, int], Tensor],
        collector: OutputCollector,
        complete: bool,
    ) -> tuple[Tensor, Tensor | None]:
        x = self.dropout(x)
        state = None if self.halting is None else self.halting.start(x)
        for depth in range(self.depth):
            collector.add_hidden_state(x)
            x = x + sinusoid(torch.full((), depth, device=x.device), x.shape[-1], x.dtype)
            x = x if signal is None else x + signal
            if state is None:
                x = run(x, depth)
                continue
            weight = state.decide(x)
            x = run(x, depth)
            state.add(x, weight)
            # Further steps of stopped tokens change nothing. On an accelerator they are cheaper than asking each time.
            # With a cache, every depth must be filled, because later tokens may take more steps.
            if not complete and not is_unreadable(x) and state.done():
                break
        return (x, None) if state is None else (state.result, state.cost(padding))
