"""Specs, a small configuration with distinct sizes, and inputs that the tests of models share."""

from typing import Any

import torch
from torch import Tensor

from helpers import SPECS
from synthattn.models import (
    SynthesizerConfig,
    SynthesizerForCausalLM,
    SynthesizerForConditionalGeneration,
    SynthesizerForMaskedLM,
    SynthesizerForSequenceClassification,
    presets,
)

VOCABULARY, MAX_LENGTH = 53, 23

# Every synthesizer, every baseline that can decode, and layers that differ.
BASELINES = ["lightconv(kernel=3)", "dynamicconv(kernel=5)"]
DECODING = [*SPECS, *BASELINES, ["random", "vanilla"], ["lightconv(kernel=3)", "dense+vanilla"]]
ENCODING = [*DECODING, "linformer(k=7)", "linformer(k=5, shared_heads=false, shared_kv=true)"]


def config(attention: str | list[str] = "random+vanilla", **changes: Any) -> SynthesizerConfig:
    sizes = {"vocab_size": VOCABULARY, "d_model": 24, "num_heads": 3, "d_ff": 37, "max_position_embeddings": MAX_LENGTH}
    return presets.tiny(attention, **(sizes | changes))


def make(kind: type, attention: str | list[str] = "random+vanilla", seed: int = 0, **changes: Any) -> Any:
    """Return a model in double precision with random changes to its initial parameters."""
    torch.manual_seed(seed)
    model = kind(config(attention, **changes)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def ids(batch: int, length: int, seed: int = 1) -> Tensor:
    """Return random tokens without padding (0) and end (1)."""
    return torch.randint(2, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(seed))


KINDS = {
    "seq2seq": SynthesizerForConditionalGeneration,
    "causal-lm": SynthesizerForCausalLM,
    "masked-lm": SynthesizerForMaskedLM,
    "classifier": SynthesizerForSequenceClassification,
}


def labels_for(kind: str, x: Tensor) -> Tensor:
    if kind == "classifier":
        return torch.arange(len(x)) % 2
    if kind == "seq2seq":
        return ids(len(x), x.shape[1] - 2, seed=5)
    return x


def assert_same_weights(ours: Any, theirs: Any) -> None:
    """Compare two models bit by bit."""
    one, other = ours.state_dict(), theirs.state_dict()
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


def assert_same_numbers(ours: Tensor, theirs: Tensor) -> None:
    """Compare outputs of equal weights. On some processors, alignment in memory changes the last bits of a product."""
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
