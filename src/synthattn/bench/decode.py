"""Generation by an encoder-decoder of T5 small's sizes, with the cache, for a source of 64 tokens."""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from synthattn.bench.layers import TOLERANCE
from synthattn.bench.models import SIZES, T5, Sizes, configuration, difference, t5_sizes
from synthattn.bench.record import Case
from synthattn.bench.timing import Run
from synthattn.models import SynthesizerForConditionalGeneration
from synthattn.synthesizers import FAMILY

SOURCE = 64
CHECKED_TOKENS = 6


def contenders(peers: bool) -> list[str]:
    """The peers have no encoder-decoder that generates with a cache."""
    return [*FAMILY, T5]


def build(name: str, case: Case, sizes: Sizes = SIZES) -> Callable[[Case], Run]:
    model = make(name, case.length, sizes)
    return lambda case: lambda: generate(model, case)


def check(name: str, case: Case, sizes: Sizes = SIZES) -> float | None:
    """Compare with generation that computes everything anew for every token: a few tokens of two examples."""
    if name == T5:
        return None
    model = make(name, case.length, sizes)
    case = dataclasses.replace(case, batch=2, length=min(case.length, CHECKED_TOKENS))
    shown = {"return_dict_in_generate": True, "output_logits": True}
    found, expected = (generate(model, case, use_cache=cache, **shown) for cache in (True, False))
    error = difference([torch.stack(found.logits)], [torch.stack(expected.logits)])
    if not error <= TOLERANCE:
        raise ValueError(f"{name}, {case}: the cache changes the logits by {error:.1e}, more than {TOLERANCE:.0e}")
    if not torch.equal(found.sequences, expected.sequences):
        raise ValueError(f"{name}, {case}: with the cache, other tokens are written than without it")
    return error


def cache_bytes(name: str, case: Case, sizes: Sizes = SIZES) -> float:
    """Measure the bytes of the decoder's own cache per token and example (or beam), after a few tokens.

    Only the tokens so far count, not the room that a cache of ours has for later ones, nor the second memory that
    re-ordering beams takes turns with.
    """
    case = dataclasses.replace(case, batch=1, length=min(case.length, CHECKED_TOKENS))
    written = generate(make(name, case.length, sizes), case, return_dict_in_generate=True)
    cache = written.past_key_values.self_attention_cache
    kept = [t for layer in cache.layers for t in (layer.keys, layer.values) if t is not None]
    return sum(t.numel() * t.element_size() for t in kept) / (case.batch * case.beams * cache.get_seq_length())


def make(name: str, length: int, sizes: Sizes = SIZES) -> Any:
    """A model that can write so many tokens: any spec of ours, or T5."""
    torch.manual_seed(1)
    config = configuration("vanilla" if name == T5 else name, max(length, SOURCE), sizes)
    if name != T5:
        return SynthesizerForConditionalGeneration(config).eval()
    from transformers import T5Config, T5ForConditionalGeneration

    return T5ForConditionalGeneration(T5Config(**t5_sizes(config))).eval()


def generate(model: Any, case: Case, use_cache: bool = True, **options: Any) -> Any:
    """Exactly ``case.length`` new tokens: until then, the end is not allowed."""
    source = _source(case.batch, model.config.vocab_size)
    return model.generate(
        source,
        attention_mask=torch.ones_like(source),
        do_sample=False,
        num_beams=case.beams,
        min_new_tokens=case.length,
        max_new_tokens=case.length,
        use_cache=use_cache,
        **options,
    )


def _source(batch: int, tokens: int) -> Tensor:
    # Neither padding (0) nor the end (1).
    return torch.randint(2, tokens, (batch, SOURCE), generator=torch.Generator().manual_seed(0))
