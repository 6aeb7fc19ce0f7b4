"""Models on an accelerator compute what they compute on the CPU, and wait for the accelerator once at most."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from accelerator import accelerator, move_module, moved, values, waits
from model_helpers import KINDS, ids, make
from synthattn.convert.masks import read_mask
from synthattn.models import SynthesizerForConditionalGeneration, SynthesizerForMaskedLM

LENGTHS = torch.tensor([4, 11, 7])
RIGHT = (torch.arange(11) < LENGTHS[:, None]).long()
ATTENTIONS = ["random", "random+vanilla", "dense", "vanilla+relative", "dense(window=5)", "dynamicconv(kernel=5)"]


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    with accelerator():
        yield


def same_on_both(model: Any, allowed: int, **inputs: Tensor) -> None:
    with torch.no_grad():
        expected = model(**inputs).logits
        move_module(model)
        with waits(allowed):
            found = model(**{name: moved(tensor) for name, tensor in inputs.items()}).logits
    assert torch.allclose(values(found), expected, atol=1e-10)


@pytest.mark.parametrize("side", ["whole", "right", "left"])
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_an_encoder_asks_once_whether_there_is_padding(attention, side):
    mask = {"whole": torch.ones_like(RIGHT), "right": RIGHT, "left": RIGHT.flip(1)}[side]
    same_on_both(make(SynthesizerForMaskedLM, attention), 1, input_ids=ids(3, 11), attention_mask=mask)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_a_model_without_padding_never_waits(attention):
    same_on_both(make(SynthesizerForMaskedLM, attention), 0, input_ids=ids(3, 11))


def test_given_positions_are_read_together_with_the_mask():
    positions = torch.arange(11).expand(3, -1)
    model = make(KINDS["causal-lm"], "random")
    same_on_both(model, 1, input_ids=ids(3, 11), attention_mask=RIGHT, position_ids=positions)


def test_an_encoder_and_a_decoder_ask_once_each():
    model = make(SynthesizerForConditionalGeneration, "random+vanilla")
    inputs = {"input_ids": ids(3, 11), "attention_mask": RIGHT, "decoder_input_ids": ids(3, 5)}
    same_on_both(model, 2, **inputs)


def test_halting_is_not_asked_for():
    """All depths run: a token that stopped no longer changes."""
    model = make(SynthesizerForMaskedLM, "random", share_layers=True, halting=True)
    same_on_both(model, 0, input_ids=ids(3, 11))


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_a_mask_of_a_converted_model_is_asked_about_once(kind):
    past = torch.ones(11, 11, dtype=torch.bool).tril()
    for allowed in (
        past[None, None],
        RIGHT.bool()[:, None, None].expand(-1, 1, 11, -1),
        past & RIGHT.bool()[:, None, None],
    ):
        given = allowed if kind == "bool" else torch.zeros(allowed.shape).masked_fill(~allowed, float("-inf"))
        expected = read_mask(given, True, 3, 11, 11)
        with waits(1):
            found = read_mask(moved(given), True, 3, 11, 11)
        assert (found.bias is None, found.padding is None) == (expected.bias is None, expected.padding is None)
        assert found.mask.causal == expected.mask.causal
        for ours, theirs in zip(vars(found.mask).values(), vars(expected.mask).values(), strict=True):
            assert ours == theirs if not isinstance(theirs, Tensor) else torch.equal(values(ours), theirs)


def test_positions_outside_of_a_table_fail_on_the_accelerator():
    """Negative ones would be read from the end of the table."""
    layer = move_module(make(SynthesizerForMaskedLM, "random"))
    for wrong in (-1, 23):
        positions = moved(torch.arange(11).index_fill(0, torch.tensor([3]), wrong))
        with pytest.raises(RuntimeError, match="must be from 0 to 22"), waits(1), torch.no_grad():
            layer(moved(ids(3, 11)), position_ids=positions)


def test_learned_positions_are_not_read():
    same_on_both(make(SynthesizerForMaskedLM, "vanilla", positions="learned"), 0, input_ids=ids(3, 11))
