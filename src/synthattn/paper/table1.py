"""Table 1: what each synthesizing function looks at, and what it costs; found out by trying, not written down.

A layer is given texts that differ in one token. Whose logits change tells what they depend on.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from synthattn.layers import SyntheticAttention

PRINTED: dict[str, tuple[str, Callable[[int, int, int], int]]] = {
    "vanilla": ("2 d²", lambda d, n, heads: 2 * d * d),
    "dense": ("d² + d N", lambda d, n, heads: d * d + d * n),
    "random": ("N²", lambda d, n, heads: n * n),
    "fixed_random": ("0", lambda d, n, heads: 0),
    "factorized_random": ("2 N k, k = 8", lambda d, n, heads: 2 * n * 8),
    "factorized_dense": ("d² + d (a + b), a b = N", lambda d, n, heads: d * d + d * 2 * round(n**0.5)),
}
"""The paper's formulas, as printed, and their values. Those with N alone are for one head."""

NAMES = {
    "vanilla": "Dot product",
    "dense": "Dense",
    "random": "Random",
    "fixed_random": "Fixed Random",
    "factorized_random": "Factorized Random",
    "factorized_dense": "Factorized Dense",
    "random+vanilla": "Random + Dot product",
    "random+dense": "Random + Dense",
    "dense+vanilla": "Dense + Dot product",
}


@dataclass(frozen=True)
class Synthesized:
    """What was found out about one synthesizing function."""

    name: str
    attention: str
    conditions_on: str
    """``nothing``, ``the token itself`` or ``all tokens``."""
    scope: str
    """``global`` where every text has the same logits, else ``local``."""
    interaction: bool
    """Whether the logit of two tokens depends on both."""
    parameters: int
    """Trained ones, without those of values and output, of all heads."""
    printed: str
    """The paper's formula; nothing for mixtures, which it does not list."""
    printed_value: int | None


def probe(attention: str, d_model: int = 16, num_heads: int = 2, length: int = 9) -> tuple[str, str, bool]:
    """What the logits of a layer depend on, whether they differ between texts, and whether two tokens interact."""
    layer = SyntheticAttention(d_model, num_heads, attention=attention, max_length=length).double().eval()
    generator = torch.Generator().manual_seed(0)
    text = torch.randn(1, length, d_model, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        for parameter in layer.parameters():  # some start at zero, which would hide what they are for
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        before = layer.logits(text).expand(1, num_heads, length, length)
        changed = torch.zeros(length, length, length, dtype=torch.bool)  # by a token: the logits from each to each
        for token in range(length):
            other = text.clone()
            other[0, token] += torch.randn(d_model, generator=generator, dtype=torch.float64)
            after = layer.logits(other).expand(1, num_heads, length, length)
            changed[token] = (after != before).any(1)[0]
    rows = changed.any(-1)
    own = bool(rows.diagonal().any())
    others = bool((rows & ~torch.eye(length, dtype=torch.bool)).any())
    conditions = "all tokens" if others else "the token itself" if own else "nothing"
    pairs = ((i, j) for i in range(length) for j in range(length) if i != j)
    # The logit from one token to another depends on both.
    interaction = any(bool(changed[i, i, j] and changed[j, i, j]) for i, j in pairs)
    return conditions, "local" if own or others else "global", interaction


def parameters(attention: str, d_model: int, num_heads: int, length: int) -> int:
    """Trained ones of the synthesizing function alone."""
    with torch.device("meta"):
        layer = SyntheticAttention(d_model, num_heads, attention=attention, max_length=length, bias=False)
    everything = sum(parameter.numel() for parameter in layer.parameters() if parameter.requires_grad)
    return everything - layer.value.weight.numel() - layer.output.weight.numel()


def synthesized(d_model: int = 512, num_heads: int = 8, length: int = 256) -> list[Synthesized]:
    """All rows, with the sizes of the paper's translation models unless given."""
    rows = []
    for attention, name in NAMES.items():
        conditions, scope, interaction = probe(attention)
        formula, value = PRINTED.get(attention, ("", None))
        rows.append(
            Synthesized(
                name,
                attention,
                conditions,
                scope,
                interaction,
                parameters(attention, d_model, num_heads, length),
                formula,
                None if value is None else value(d_model, length, num_heads),
            )
        )
    return rows
