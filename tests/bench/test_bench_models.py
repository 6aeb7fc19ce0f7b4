"""The encoders and the writers that are timed: each of them runs, and is what it is taken for."""

import dataclasses
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from synthattn.bench import decode, models
from synthattn.bench.record import Case, UnsupportedError
from synthattn.engine import compiled, input_independent, plain
from synthattn.models.cache import KeysAndValuesLayer, ValuesOnlyLayer
from synthattn.synthesizers import FAMILY

SIZES = {"vocab_size": 53, "d_model": 20, "num_heads": 5, "d_ff": 80, "encoder_layers": 2, "decoder_layers": 2}
PACKAGES = {"linformer (peer)": "linformer", "x-transformers (peer)": "x_transformers"}
PADDED = [name for name in models.contenders(peers=True) if name != "linformer (peer)"]
# Long enough that layers do not fall back on plain execution.
LENGTH = 128


@pytest.fixture(autouse=True)
def _short_source(monkeypatch):
    monkeypatch.setattr(decode, "SOURCE", 9)


def need(name: str) -> None:
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name])


def test_the_contenders_of_each_kind():
    assert models.contenders(peers=False) == [
        *models.OURS,
        "Hugging Face T5",
        "Hugging Face BERT",
        "nn.TransformerEncoder",
    ]
    assert models.contenders(peers=True)[-2:] == ["linformer (peer)", "x-transformers (peer)"]
    assert decode.contenders(peers=True) == [*FAMILY, "Hugging Face T5"]
    for module in (models, decode):
        with pytest.raises(ValueError, match=r"'ramdom'; did you mean .*random"):
            module.build("ramdom", Case("model", 2, 13), SIZES)


@pytest.mark.parametrize("mask", ["full", "padded"])
@pytest.mark.parametrize("name", models.contenders(peers=True))
def test_every_encoder_runs(name, mask):
    need(name)
    case = Case("model", 3, 13, mask=mask)
    encoder, batch = models.make(name, 13, SIZES).eval(), models.batch(case, SIZES)
    prepare = models.build(name, case, SIZES)
    if name not in PADDED and mask == "padded":
        with pytest.raises(UnsupportedError, match="takes no masks"):
            prepare(case)()
        return
    assert encoder(batch.ids, batch.padding).shape == (3, 13, 20)
    prepare(dataclasses.replace(case, batch=1, length=5))()
    prepare(case)()


@pytest.mark.parametrize("name", PADDED)
def test_no_encoder_looks_at_padding(name):
    need(name)
    encoder, batch = models.make(name, 13, SIZES).eval(), models.batch(Case("model", 3, 13, mask="padded"), SIZES)
    assert batch.padding is not None
    assert batch.padding.sum(-1).tolist() == [7, 4, 0]
    changed = batch.ids.masked_fill(batch.padding, 7)
    assert not torch.equal(changed, batch.ids)
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            before, after = (encoder(ids, batch.padding)[~batch.padding] for ids in (batch.ids, changed))
            torch.testing.assert_close(before, after, rtol=0, atol=1e-5)
            seen = encoder(changed, None)[~batch.padding]
        assert not torch.allclose(seen, after, atol=1e-3)


@pytest.mark.parametrize("name", models.contenders(peers=True))
def test_a_training_step_learns(name, monkeypatch):
    need(name)
    case, made = Case("train", 3, 13), []
    make = models.make
    monkeypatch.setattr(models, "make", lambda *args: made.append(make(*args)) or made[-1])
    prepare = models.build(name, case, SIZES)
    batch = models.batch(case, SIZES)

    def loss() -> float:
        with torch.no_grad():
            return float(batch.loss(made[0](batch.ids, batch.padding)))

    prepare(dataclasses.replace(case, batch=1, length=5))()
    before = loss()
    step = prepare(case)
    for _ in range(5):
        step()
    assert loss() < before
    assert all(p.grad is None for p in made[0].parameters())
    assert not any(m.p for m in made[0].modules() if isinstance(m, torch.nn.Dropout))


def test_an_encoder_is_not_causal():
    with pytest.raises(UnsupportedError, match="no causal mask"):
        models.build("random", Case("model", 2, 13, mask="causal"), SIZES)(Case("model", 2, 13, mask="causal"))


@pytest.mark.parametrize("kind", ["model", "train"])
@pytest.mark.parametrize("mask", ["full", "padded"])
@pytest.mark.parametrize("name", models.OURS)
def test_ours_are_right(name, mask, kind):
    error = models.check(name, Case(kind, 16, LENGTH, mask=mask), SIZES)
    assert error is not None
    assert error < 1e-5


def test_not_a_number_is_not_small(monkeypatch):
    right = input_independent.attend
    monkeypatch.setattr(input_independent, "attend", lambda *args: right(*args) * float("nan"))  # pyright: ignore[reportOptionalOperand]
    with pytest.raises(ValueError, match="differs from the outputs of plain execution by nan"):
        models.check("random", Case("train", 16, LENGTH), SIZES)
    some, none = torch.ones(3), torch.full((2,), float("nan"))
    assert models.difference([some, none], [some, some[:2]]) != 0.0


@pytest.mark.parametrize("name", [*models.RIVALS, *models.PEERS])
def test_others_are_not_checked(name):
    assert models.check(name, Case("model", 2, 13), SIZES) is None


def wrong(result: Any) -> Any:
    return result if result is None else result * 1.01


class WrongGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return gradients[0] * 1.1


def wrong_gradient(result: Any) -> Any:
    return result if result is None else WrongGradient.apply(result)


@pytest.mark.parametrize(
    ("name", "kind", "module", "function", "change", "message"),
    [
        ("vanilla", "model", models, "_copy_t5", lambda x: x, "the output of T5"),
        ("vanilla", "train", compiled, "attend", wrong, "the output of T5"),
        ("random", "model", input_independent, "attend", wrong, "the outputs of plain execution"),
        ("factorized_dense", "model", plain, "attend", wrong, "the outputs of plain execution"),
        ("dense+vanilla", "train", compiled, "attend", wrong, "the outputs of plain execution"),
        ("linformer", "train", F, "scaled_dot_product_attention", wrong, "the outputs of plain execution"),
        (
            "random+vanilla",
            "train",
            compiled,
            "attend",
            wrong_gradient,
            "the gradients in single precision of plain execution",
        ),
        ("random+vanilla", "train", plain, "attend", wrong_gradient, "the gradients of plain execution"),
        (
            "random",
            "train",
            input_independent,
            "attend",
            wrong_gradient,
            "the gradients in single precision of plain execution",
        ),
    ],
)
def test_what_is_wrong_is_not_timed(name, kind, module, function, change, message, monkeypatch):
    right = getattr(module, function)
    if function == "_copy_t5":
        monkeypatch.setattr(module, function, lambda ours, theirs: None)
    else:
        monkeypatch.setattr(module, function, lambda *args, **kwargs: change(right(*args, **kwargs)))
    with pytest.raises(ValueError, match=rf"^{name.replace('+', '.')}, 2x{LENGTH}: differs from {message} by .*, more"):
        models.check(name, Case(kind, 16, LENGTH), SIZES)


def parameters(name: str, length: int, sizes: models.Sizes = models.SIZES) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in models.make(name, length, sizes).parameters() if p.requires_grad)


def test_encoders_have_the_parameters_of_their_attention():
    count = {name: parameters(name, 13, SIZES) for name in ("vanilla", "random", "fixed_random", models.T5)}
    assert count["vanilla"] == count[models.T5]
    assert count["random"] - count["fixed_random"] == 2 * 5 * 13 * 13
    # Queries and keys of every layer.
    assert count["vanilla"] - count["fixed_random"] == 2 * 2 * 20 * 20


@pytest.mark.parametrize("name", models.contenders(peers=True))
def test_the_encoders_have_the_size_of_t5_small(name):
    """Up to tables of positions, biases, and what a variant has in place of queries and keys."""
    need(name)
    t5 = parameters(models.T5, 512)
    assert t5 == 35_330_816
    tables = 6 * 8 * 512 * 512 if "random" in name.replace("fixed_random", "").replace("factorized_random", "") else 0
    assert 0.9 < (parameters(name, 512) - tables) / t5 < 1.1


@pytest.mark.parametrize("name", decode.contenders(peers=False))
def test_every_writer_writes_as_much_as_it_is_asked_for(name):
    prepare = decode.build(name, Case("decode", 2, 11), SIZES)  # more than is read
    for case in (Case("decode", 1, 4), Case("decode", 2, 11), Case("decode", 2, 7, beams=3)):
        written = prepare(case)()
        assert isinstance(written, torch.Tensor)
        assert written.shape == (case.batch, case.length + 1)  # the start, and the new ones
        assert not (written == 1).any()


@pytest.mark.parametrize(("name", "beams"), [*((name, 1) for name in FAMILY), ("random", 3), ("random+vanilla", 3)])
def test_the_cache_changes_nothing(name, beams):
    error = decode.check(name, Case("decode", 16, 11, beams=beams), SIZES)
    assert error is not None
    assert error < 1e-5


def test_the_cache_of_others_is_not_checked():
    assert decode.check(models.T5, Case("decode", 16, 11), SIZES) is None


@pytest.mark.parametrize(("name", "layer"), [("random", ValuesOnlyLayer), ("dense+vanilla", KeysAndValuesLayer)])
def test_a_cache_that_changes_something_is_not_timed(name, layer, monkeypatch):
    right = layer.update

    def update(self, keys, values, *args, **kwargs):
        return right(self, keys, values * 1.01, *args, **kwargs)

    monkeypatch.setattr(layer, "update", update)
    with pytest.raises(ValueError, match=r"2x6: the cache changes the logits by .*, more than"):
        decode.check(name, Case("decode", 16, 11), SIZES)


@pytest.mark.parametrize("name", decode.contenders(peers=False))
def test_the_cache_holds_keys_only_where_a_dot_product_reads_them(name):
    keys = "vanilla" in name or name == models.T5
    values = 2 * 20 * 4  # layers, width, bytes
    assert decode.cache_bytes(name, Case("decode", 2, 11, beams=3), SIZES) == values * (2 if keys else 1)
