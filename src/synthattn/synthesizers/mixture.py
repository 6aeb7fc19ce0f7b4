"""Mixtures: ``B = sum over n of alpha_n S_n(X)``, one softmax over the sum of the logits."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from synthattn.logits import Logits
from synthattn.synthesizers.base import Resize, Sizes, Synthesizer, Tokens
from synthattn.synthesizers.dense import LearnedKeys
from synthattn.synthesizers.spec import Spec
from synthattn.synthesizers.vanilla import VanillaSynthesizer

Mix = Literal["softmax", "sum", "sigmoid"]


class MixtureWeights(nn.Module):
    """The weights of a mixture, computed from ``alpha``, which starts at zero.

    For an axis of terms and one of heads, softmax gives the paper's weights: with sum one over the terms of each head.
    For a single number, they are sigmoid(alpha) and 1 - sigmoid(alpha), as in the authors' code.
    """

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.zeros(shape))

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.alpha)

    def forward(self) -> Sequence[Tensor]:
        if self.alpha.dim() == 0:
            weight = self.alpha.sigmoid()
            return weight, 1 - weight
        return self.alpha.softmax(0)[:, :, None, None].unbind()


class Mixture(Synthesizer):
    """A weighted sum of synthesizers. Without ``weights`` it is a plain sum, as in the paper's C4 runs."""

    name = "mixture"

    def __init__(self, terms: Sequence[Synthesizer], weights: nn.Module | None) -> None:
        super().__init__()
        self.terms = nn.ModuleList(terms)
        self.weights = weights
        self.input_independent = all(term.input_independent for term in terms)
        self.key_width = sum(term.key_width for term in terms)

    @property
    def max_length(self) -> int | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        lengths = [term.max_length for term in self.synthesizers if term.max_length is not None]
        return min(lengths, default=None)

    @property
    def synthesizers(self) -> list[Synthesizer]:
        return [term for term in self.terms if isinstance(term, Synthesizer)]

    def forward(self, query: Tokens, memory: Tokens) -> Logits:
        weights = iter(() if self.weights is None else self.weights())
        query = self._with_shared_queries(query)
        total: Logits | None = None
        for term, tokens in zip(self.synthesizers, self._memories(memory), strict=True):
            if self.weights is not None and term.weighted:
                logits = term.weighted_logits(query, tokens, next(weights))
            else:
                logits = term(query, tokens)
            total = logits if total is None else total + logits
        assert total is not None, "a mixture of nothing"
        return total

    def project_keys(self, memory: Tokens) -> Tensor | None:
        """Return the keys of all terms that need some, concatenated."""
        keys = [keys for term in self.synthesizers if (keys := term.project_keys(memory)) is not None]
        if len(keys) < 2:
            return keys[0] if keys else None
        return torch.cat(keys, dim=-1)

    def _memories(self, memory: Tokens) -> list[Tokens]:
        """Return the memory for each term, with that term's part of the keys."""
        readers = sum(term.reads_memory for term in self.synthesizers)
        if memory.keys is None or readers < 2:
            return [memory] * len(self.terms)
        keys = iter(memory.keys.chunk(readers, dim=-1))
        return [replace(memory, keys=next(keys)) if term.reads_memory else memory for term in self.synthesizers]

    def _with_shared_queries(self, query: Tokens) -> Tokens:
        if not any(isinstance(term, LearnedKeys) and term.shares_query for term in self.synthesizers):
            return query
        vanilla = next(term for term in self.synthesizers if isinstance(term, VanillaSynthesizer))
        return replace(query, projected=vanilla.project(query))

    def check_lengths(self, query: Tokens, memory: Tokens) -> None:
        for term in self.synthesizers:
            term.check_lengths(query, memory)

    def resize_max_length(self, max_length: int, how: Resize) -> None:
        for term in self.synthesizers:
            term.resize_max_length(max_length, how)


def build(spec: Spec, sizes: Sizes, mix: Mix = "softmax") -> Synthesizer:
    """Build the synthesizer of a spec: its single term, or a mixture of its terms."""
    if mix not in get_args(Mix):
        raise ValueError(f"mix must be 'softmax', 'sum' or 'sigmoid', got {mix!r}")
    terms = [term.build(sizes) for term in spec.terms]
    dot_products = sum(isinstance(term, VanillaSynthesizer) for term in terms)
    if dot_products != 1 and any(isinstance(term, LearnedKeys) and term.shares_query for term in terms):
        raise ValueError(
            f"dense(shared_query=true) takes the queries of the one dot product in its mixture, {spec} has "
            f"{dot_products}; write for example 'dense(shared_query=true)+vanilla'"
        )
    if len(terms) == 1:
        return terms[0]
    weighted = sum(term.weighted for term in terms)
    if weighted < 2 or mix == "sum":
        return Mixture(terms, None)
    if mix == "softmax":
        return Mixture(terms, MixtureWeights(weighted, sizes.num_heads))
    if weighted != 2:
        raise ValueError(f"mix='sigmoid' weighs exactly two synthesizers, {spec} has {weighted}; use mix='softmax'")
    return Mixture(terms, MixtureWeights())
