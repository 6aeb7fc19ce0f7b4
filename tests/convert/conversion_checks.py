"""One check for each cell of the table of conversions. Tests run them, and a command prints what they return."""

import copy
import tempfile
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
import transformers
from model_families import FAMILIES, inputs, logits, longest, original, padded
from torch import Tensor, nn

import synthattn
from synthattn.convert import interface
from synthattn.engine.plain import attend_whole

SPECS = ["random", "dense", "random+vanilla"]
CLOSE: Any = {"rtol": 1e-9, "atol": 1e-10}
ROTATED: Any = {"rtol": 1e-4, "atol": 1e-4}
"""Rotary positions are computed in float32, so that shifting all of them changes rounding."""


def converted(name: str, spec: str) -> Any:
    """Return a model of a family with every self-attention replaced, and with all logits far from zero."""
    model = original(name)
    synthattn.replace_attention(model, spec, longest(name))
    torch.manual_seed(2)
    for path, parameter in model.named_parameters():
        if ".synthesizer." in path:
            nn.init.normal_(parameter)
    return model


def equality(name: str, spec: str) -> str:
    """With ``vanilla`` the model computes what it computed; with other specs, something else, until it is restored."""
    model, given = original(name), inputs(name)
    expected = logits(model, given)
    everything = {path: value.clone() for path, value in model.state_dict().items()}
    synthattn.replace_attention(model, "vanilla")
    torch.testing.assert_close(logits(model, given), expected, **CLOSE)
    synthattn.restore(model)
    synthattn.replace_attention(model, spec, longest(name))
    assert not torch.allclose(logits(model, given), expected, rtol=1e-3, atol=1e-3)
    synthattn.restore(model)
    assert torch.equal(logits(model, given), expected)
    torch.testing.assert_close(model.state_dict(), everything, rtol=0, atol=0)
    return "yes"


def padding(name: str, spec: str) -> str:
    """Padding changes nothing, on the left too where the model itself does not count it."""
    if FAMILIES[name].vision:
        return "no padding"
    model, given, plain = converted(name, spec), inputs(name), original(name)
    for one in (model, plain):
        _same_with_padding(one, given, "right", CLOSE)
    try:
        _same_with_padding(plain, given, "left", ROTATED)
    except AssertionError:  # absolute positions
        return "right"
    _same_with_padding(model, given, "left", ROTATED)
    return "yes"


def _same_with_padding(model: Any, given: dict[str, Tensor], side: str, close: Any) -> None:
    expected, found = logits(model, given), logits(model, padded(given, side))
    if found.shape != expected.shape:  # the logits of an encoder-decoder are the decoder's
        found = found[:, :-2] if side == "right" else found[:, 2:]
    torch.testing.assert_close(found, expected, **close)


def gradients(name: str, spec: str) -> str:
    """Every parameter has a gradient, equal to that of attention in torch's plain operations."""
    model, given = converted(name, spec), inputs(name)
    found: list[dict[str, Any]] = []
    for engine in (interface.run, attend_whole):
        model.zero_grad()
        with mock.patch.object(interface, "run", engine):
            logits(model, given).square().sum().backward()
        found.append({path: value.grad for path, value in model.named_parameters()})
    assert all(grad is not None and bool(grad.any()) for grad in found[0].values())
    torch.testing.assert_close(*found, **CLOSE)
    return "yes"


def saving(name: str, spec: str) -> str:
    """A saved model loads with equal logits, by an Auto class as well, and again; its own class refuses to load it."""
    model, given = converted(name, spec), inputs(name)
    expected = logits(model, given)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        again = synthattn.from_pretrained(folder, dtype=torch.float64)
        with pytest.raises((ValueError, ImportError), match=r"synthattn\.from_pretrained"):
            getattr(transformers, FAMILIES[name].model).from_pretrained(folder)
        auto = getattr(transformers, FAMILIES[name].auto)
        found = auto.from_pretrained(folder, dtype=torch.float64)
        found.save_pretrained(f"{folder}/again")
        third = auto.from_pretrained(f"{folder}/again", dtype=torch.float64)
    assert type(again) is type(found) is type(third) is type(model)
    for loaded in (again, found, third):
        torch.testing.assert_close(loaded.state_dict(), model.state_dict(), rtol=0, atol=0)
        torch.testing.assert_close(logits(loaded, given), expected, **CLOSE)
    if FAMILIES[name].generates:
        prompt = inputs(name, length=5)
        prompt.pop("decoder_input_ids", None)
        torch.testing.assert_close(generate(found, prompt), generate(model, prompt), **CLOSE)
    return "yes"


def generation(name: str, spec: str) -> str:
    """Greedy decoding gives the same logits without a cache, with a dynamic and a static one, and with padding."""
    if not FAMILIES[name].generates:
        return "does not generate"
    model, given = converted(name, spec), inputs(name, length=5)
    given.pop("decoder_input_ids", None)
    expected = generate(model, given, use_cache=False)
    assert expected.shape[1] == 4
    torch.testing.assert_close(generate(model, given), expected)
    torch.testing.assert_close(generate(model, given, cache_implementation="static", disable_compile=True), expected)
    plain = original(name)
    if torch.allclose(generate(plain, padded(given, "left")), generate(plain, given)):
        for options in ({}, {"cache_implementation": "static", "disable_compile": True}):
            torch.testing.assert_close(generate(model, padded(given, "left"), **options), expected)
    return "yes"


def generate(model: Any, given: dict[str, Tensor], **options: Any) -> Tensor:
    """Return the logits of four tokens that a model chooses."""
    options |= {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False}
    result = model.generate(**given, **options, output_logits=True, return_dict_in_generate=True)
    return torch.stack(result.logits, dim=1)


def compiling(name: str, spec: str, backend: str = "aot_eager") -> str:
    """A compiled model has equal logits and gradients, for two lengths."""
    model = converted(name, spec)
    torch._dynamo.reset()
    compiled: Any = torch.compile(copy.deepcopy(model), backend=backend)
    for length in (7, 5):
        given = inputs(name, length=length)
        if not FAMILIES[name].vision:
            given = padded(given, "right")
        results = [logits(one, given) for one in (model, compiled)]
        torch.testing.assert_close(results[1], results[0], **CLOSE)
        for one, result in zip((model, compiled), results, strict=True):
            one.zero_grad()
            result.square().sum().backward()
        found = {path.removeprefix("_orig_mod."): value.grad for path, value in compiled.named_parameters()}
        torch.testing.assert_close(found, {path: value.grad for path, value in model.named_parameters()}, **CLOSE)
    return "yes"


def lora(name: str, spec: str) -> str:
    """LoRA on all projections that are left trains, saves, and loads onto the saved model."""
    import peft

    model, given = converted(name, spec), inputs(name)
    linear = [path for path, part in model.named_modules() if _takes_lora(part)]
    heads = ("lm_head", "decoder", "classifier", "vocab_projector")
    settings = peft.LoraConfig(r=2, target_modules=[path for path in linear if not path.endswith(heads)])
    plain = logits(model, given)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(f"{folder}/model")
        adapted = peft.get_peft_model(model, settings).double()
        optimizer = torch.optim.SGD([p for p in adapted.parameters() if p.requires_grad], lr=1e-3)
        for _ in range(2):
            logits(adapted, given).square().mean().backward()
            optimizer.step()
        expected = logits(adapted, given)
        adapted.save_pretrained(f"{folder}/adapter")
        base = synthattn.from_pretrained(f"{folder}/model", dtype=torch.float64)
        again = peft.PeftModel.from_pretrained(base, f"{folder}/adapter").double().eval()
    torch.testing.assert_close(logits(again, given), expected, **CLOSE)
    assert not torch.allclose(expected, plain)
    return "yes"


def _takes_lora(part: nn.Module) -> bool:
    return type(part) is nn.Linear or type(part).__name__ == "Conv1D"


CHECKS: dict[str, Callable[[str, str], str]] = {
    "vanilla is equal": equality,
    "padding": padding,
    "gradients": gradients,
    "save and load": saving,
    "generation with caches": generation,
    "compile": compiling,
    "peft": lora,
}
"""The columns of the table."""
