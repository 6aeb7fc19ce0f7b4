"""Mixtures: ``B = sum over n of alpha_n S_n(X)``, one softmax over the sum of the logits."""

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from synthattn.logits import Logits
from synthattn.synthesizers.base import Resize, Sizes, Synthesizer, Tokens
from synthattn.synthesizers.spec import Spec

Mix = Literal["softmax", "sum", "sigmoid"]


class SoftmaxWeights(nn.Module):
    """The paper's: one weight per synthesizer and head, learned, summing to one over the synthesizers."""

    def __init__(self, terms: int, heads: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.zeros(terms, heads))

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.alpha)

    def forward(self) -> Sequence[Tensor]:
        return self.alpha.softmax(0)[:, :, None, None].unbind()


class SigmoidWeights(nn.Module):
    """The authors' code: one scalar per layer; the first synthesizer gets its sigmoid, the second the rest."""

    def __init__(self) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.zeros(()))

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.alpha)

    def forward(self) -> Sequence[Tensor]:
        weight = self.alpha.sigmoid()
        return weight, 1 - weight


class Mixture(Synthesizer):
    """A weighted sum of synthesizers; without ``weights`` a plain sum, as in the paper's C4 runs."""

    name = "mixture"

    def __init__(self, terms: Sequence[Synthesizer], weights: nn.Module | None) -> None:
        super().__init__()
        self.terms = nn.ModuleList(terms)
        self.weights = weights
        self.batch_free = all(term.batch_free for term in terms)
        self.reads_memory = any(term.reads_memory for term in terms)

    @property
    def max_length(self) -> int | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        lengths = [term.max_length for term in self.synthesizers if term.max_length is not None]
        return min(lengths, default=None)

    @property
    def synthesizers(self) -> list[Synthesizer]:
        return [term for term in self.terms if isinstance(term, Synthesizer)]

    def forward(self, query: Tokens, memory: Tokens) -> Logits:
        weights = iter(() if self.weights is None else self.weights())
        total: Logits | None = None
        for term in self.synthesizers:
            if self.weights is not None and term.weighted:
                logits = term.weighted_logits(query, memory, next(weights))
            else:
                logits = term(query, memory)
            total = logits if total is None else total + logits
        assert total is not None, "a mixture of nothing"
        return total

    def check_lengths(self, query: Tokens, memory: Tokens) -> None:
        for term in self.synthesizers:
            term.check_lengths(query, memory)

    def resize_max_length(self, max_length: int, how: Resize) -> None:
        for term in self.synthesizers:
            term.resize_max_length(max_length, how)


def build(spec: Spec, sizes: Sizes, mix: Mix = "softmax") -> Synthesizer:
    """The synthesizer of a spec: its single term, or a mixture of its terms."""
    if mix not in get_args(Mix):
        raise ValueError(f"mix must be 'softmax', 'sum' or 'sigmoid', got {mix!r}")
    terms = [term.build(sizes) for term in spec.terms]
    if len(terms) == 1:
        return terms[0]
    weighted = sum(term.weighted for term in terms)
    if weighted < 2 or mix == "sum":
        return Mixture(terms, None)
    if mix == "softmax":
        return Mixture(terms, SoftmaxWeights(weighted, sizes.num_heads))
    if weighted != 2:
        raise ValueError(f"mix='sigmoid' weighs exactly two synthesizers, {spec} has {weighted}; use mix='softmax'")
    return Mixture(terms, SigmoidWeights())
