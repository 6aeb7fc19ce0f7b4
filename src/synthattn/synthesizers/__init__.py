"""The synthesizers, of the paper and by distance. Each has a file and a line in the table ``SYNTHESIZERS``."""

from synthattn.synthesizers import spec as _spec
from synthattn.synthesizers.alibi import Alibi
from synthattn.synthesizers.base import Sizes, Synthesizer, Tokens
from synthattn.synthesizers.dense import Dense
from synthattn.synthesizers.factorized_dense import FactorizedDense
from synthattn.synthesizers.factorized_random import FactorizedRandom
from synthattn.synthesizers.fixed_random import FixedRandom
from synthattn.synthesizers.mixture import Mix, Mixture, build
from synthattn.synthesizers.random import Random
from synthattn.synthesizers.relative import Relative
from synthattn.synthesizers.spec import Spec, Term
from synthattn.synthesizers.toeplitz import Toeplitz
from synthattn.synthesizers.vanilla import Vanilla

SYNTHESIZERS: dict[str, type[Term]] = {
    "vanilla": Vanilla,
    "dense": Dense,
    "random": Random,
    "fixed_random": FixedRandom,
    "factorized_random": FactorizedRandom,
    "factorized_dense": FactorizedDense,
    "toeplitz": Toeplitz,
    "relative": Relative,
    "alibi": Alibi,
}

FAMILY = (
    "vanilla",
    "fixed_random",
    "random",
    "factorized_random",
    "dense",
    "factorized_dense",
    "random+dense",
    "dense+vanilla",
    "random+vanilla",
)
"""The rows of the paper's Table 2."""


def parse(attention: str | Spec | Term) -> Spec:
    """Parse a spec such as ``"random+vanilla"``. Parsed specs are returned unchanged."""
    if isinstance(attention, Spec):
        return attention
    if isinstance(attention, Term):
        return Spec((attention,))
    if not isinstance(attention, str):
        raise ValueError(f"attention must be a text such as 'random+vanilla', got {type(attention).__name__}")
    return _spec.parse(attention, SYNTHESIZERS)


__all__ = [
    "FAMILY",
    "SYNTHESIZERS",
    "Mix",
    "Mixture",
    "Sizes",
    "Spec",
    "Synthesizer",
    "Term",
    "Tokens",
    "build",
    "parse",
]
