"""Specs of all layers that can mix the tokens in a block: the synthesizers and the baselines."""

from dataclasses import dataclass
from typing import ClassVar

from synthattn.layers.dynamic_convolution import DynamicConvolution
from synthattn.layers.light_convolution import LightConvolution
from synthattn.layers.linformer import Linformer
from synthattn.layers.synthetic_attention import SyntheticAttention
from synthattn.layers.token_mixer import TokenMixer
from synthattn.synthesizers import SYNTHESIZERS, Mix, Spec, Term, parse, spec
from synthattn.synthesizers.spec import at_least_one


@dataclass(frozen=True)
class Baseline(Term):
    """A term that names a whole layer in place of logits for ``SyntheticAttention``."""

    def layer(
        self, d_model: int, num_heads: int, max_length: int | None, dropout: float, head_dim: int | None, bias: bool
    ) -> TokenMixer:
        """Build the layer. ``dropout`` is the probability of dropping an attention weight."""
        raise NotImplementedError


@dataclass(frozen=True)
class ConvolutionTerm(Baseline):
    """Options of a convolution.

    Attributes:
        kernel: the number of tokens in a window, odd.
        dropout: the probability of dropping a kernel entry; None for the dropout of attention weights.
    """

    convolution: ClassVar[type[LightConvolution] | type[DynamicConvolution]]
    kernel: int = 9
    dropout: float | None = None

    def __post_init__(self) -> None:
        # A causal window could have an even width, but an encoder's window is centred.
        if self.kernel < 1 or self.kernel % 2 == 0:
            raise ValueError(f"{self.name}: kernel must be a positive odd number, got {self.kernel}")
        if self.dropout is not None and not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"{self.name}: dropout must be at least 0 and below 1, got {self.dropout}")

    def layer(
        self, d_model: int, num_heads: int, max_length: int | None, dropout: float, head_dim: int | None, bias: bool
    ) -> LightConvolution | DynamicConvolution:
        if head_dim is not None and num_heads * head_dim != d_model:
            raise ValueError(
                f"{self.name} splits d_model={d_model} channels over its heads, but num_heads={num_heads} times "
                f"head_dim={head_dim} is {num_heads * head_dim}; leave head_dim out"
            )
        chosen = dropout if self.dropout is None else self.dropout
        return self.convolution(d_model, num_heads, self.kernel, chosen, bias=bias)


@dataclass(frozen=True)
class LightConv(ConvolutionTerm):
    name: ClassVar[str] = "lightconv"
    convolution = LightConvolution


@dataclass(frozen=True)
class DynamicConv(ConvolutionTerm):
    name: ClassVar[str] = "dynamicconv"
    convolution = DynamicConvolution


@dataclass(frozen=True)
class LinformerTerm(Baseline):
    """Options of Linformer: ``k``, the number of mixtures, and the sharing of E and F, see :class:`Linformer`."""

    name: ClassVar[str] = "linformer"
    k: int = 64
    shared_heads: bool = True
    shared_kv: bool = False

    def __post_init__(self) -> None:
        at_least_one(self.name, "k", self.k)

    def layer(
        self, d_model: int, num_heads: int, max_length: int | None, dropout: float, head_dim: int | None, bias: bool
    ) -> Linformer:
        if max_length is None:
            raise ValueError("linformer needs max_length: the longest input that it shall take")
        sharing = {"shared_heads": self.shared_heads, "shared_kv": self.shared_kv}
        return Linformer(d_model, num_heads, self.k, max_length, dropout, **sharing, head_dim=head_dim, bias=bias)


MIXERS: dict[str, type[Term]] = SYNTHESIZERS | {
    "lightconv": LightConv,
    "dynamicconv": DynamicConv,
    "linformer": LinformerTerm,
}


def parse_mixer(attention: str | Spec | Term) -> Spec:
    """Parse a spec of synthesizers or of one baseline. Parsed specs are returned unchanged."""
    found = spec.parse(attention, MIXERS) if isinstance(attention, str) else parse(attention)
    for n, term in enumerate(found.terms):
        if isinstance(term, Baseline) and len(found.terms) > 1:
            other = found.terms[0 if n else 1].name
            raise ValueError(f"{term.name} is a layer of its own, it cannot be mixed with {other}")
    return found


def build_mixer(
    attention: str | Spec | Term,
    d_model: int,
    num_heads: int,
    max_length: int | None,
    dropout: float,
    *,
    head_dim: int | None = None,
    bias: bool = True,
    mix: Mix = "softmax",
) -> TokenMixer:
    """Build the layer that a spec names. The arguments are the same as in ``SyntheticAttention``.

    ``dropout`` also applies to the kernels of convolutions whose spec has no ``dropout``.
    """
    found = parse_mixer(attention)
    term = found.terms[0]
    if isinstance(term, Baseline):
        return term.layer(d_model, num_heads, max_length, dropout, head_dim, bias)
    return SyntheticAttention(d_model, num_heads, found, max_length, dropout, head_dim=head_dim, bias=bias, mix=mix)
