"""Whole encoders, of T5 small's sizes: their forward pass, and their training step. Tokens in, token vectors out."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from synthattn.bench.layers import TOLERANCE, masks
from synthattn.bench.record import Case, UnsupportedError
from synthattn.bench.rivals import peer
from synthattn.bench.timing import Run
from synthattn.layers.mixers import LinformerTerm
from synthattn.models import SynthesizerConfig, SynthesizerModel, presets
from synthattn.synthesizers import FAMILY

OURS = [*FAMILY, "lightconv", "dynamicconv", "linformer"]
T5 = "Hugging Face T5"
Sizes = Mapping[str, Any]
"""Fields of the configuration to change; a test has no time for T5 small."""
SIZES: Sizes = MappingProxyType({})
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0, "classifier_dropout": 0.0}
CHECKED_LENGTH = 128
# In single precision, a few of millions of ReLUs are found on the other side of zero, and the gradient changes with
# each of them far more than by rounding. A smooth function in their place leaves nothing but that.
SMOOTH: Sizes = MappingProxyType({"activation": "gelu"})


class TransformersEncoder(nn.Module):
    """An encoder as transformers has them, ours among them."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model: Any = model

    def forward(self, ids: Tensor, padding: Tensor | None) -> Tensor:
        return self.model(ids, attention_mask=None if padding is None else (~padding).long()).last_hidden_state


class TorchEncoder(nn.Module):
    """``torch.nn.TransformerEncoder`` between what it lacks: embeddings of tokens and of positions."""

    def __init__(self, config: SynthesizerConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.positions = nn.Embedding(config.max_position_embeddings, config.d_model)
        layer = nn.TransformerEncoderLayer(
            config.d_model, config.num_heads, config.d_ff, 0.0, "relu", batch_first=True, norm_first=True
        )
        # Nested tensors it has for layers that normalise last only; asked for here, it would warn.
        self.encoder = nn.TransformerEncoder(
            layer, config.encoder_layers, nn.LayerNorm(config.d_model), enable_nested_tensor=False
        )

    def forward(self, ids: Tensor, padding: Tensor | None) -> Tensor:
        x = self.embedding(ids) + self.positions.weight[: ids.shape[1]]
        return self.encoder(x, src_key_padding_mask=padding)


class LinformerEncoder(nn.Module):
    """``linformer.Linformer`` with as many mixtures as ours, and the embeddings of ``linformer.LinformerLM``."""

    def __init__(self, config: SynthesizerConfig) -> None:
        super().__init__()
        library, sizes = peer("linformer"), (config.d_model, config.max_position_embeddings, config.encoder_layers)
        if config.d_ff != 4 * config.d_model:
            raise UnsupportedError(
                f"the linformer package has d_ff = 4 d_model, not {config.d_ff} for {config.d_model}"
            )
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.positions = nn.Embedding(config.max_position_embeddings, config.d_model)
        self.encoder = library.Linformer(*sizes, k=LinformerTerm().k, heads=config.num_heads)

    def forward(self, ids: Tensor, padding: Tensor | None) -> Tensor:
        if padding is not None:
            raise UnsupportedError("the linformer package takes no masks")
        return self.encoder(self.embedding(ids) + self.positions.weight[: ids.shape[1]])


class XTransformersEncoder(nn.Module):
    """``x_transformers.TransformerWrapper`` of an ``Encoder``, fused (which excludes T5's bias) and with ReLU."""

    def __init__(self, config: SynthesizerConfig) -> None:
        super().__init__()
        library = peer("x_transformers")
        layers = library.Encoder(
            dim=config.d_model,
            depth=config.encoder_layers,
            heads=config.num_heads,
            attn_dim_head=config.d_model // config.num_heads,
            attn_flash=True,
            ff_mult=config.d_ff / config.d_model,
            ff_custom_activation=nn.ReLU(),
        )
        self.encoder = library.TransformerWrapper(
            num_tokens=config.vocab_size,
            max_seq_len=config.max_position_embeddings,
            attn_layers=layers,
            return_only_embed=True,
        )

    def forward(self, ids: Tensor, padding: Tensor | None) -> Tensor:
        return self.encoder(ids, mask=None if padding is None else ~padding)


def t5_sizes(config: SynthesizerConfig) -> dict[str, Any]:
    """The fields of a ``T5Config`` for a model like ours."""
    return {
        "vocab_size": config.vocab_size,
        "d_model": config.d_model,
        "d_kv": config.d_model // config.num_heads,
        "d_ff": config.d_ff,
        "num_heads": config.num_heads,
        "num_layers": config.encoder_layers,
        "num_decoder_layers": config.decoder_layers,
        "relative_attention_num_buckets": config.relative_buckets,
        "relative_attention_max_distance": config.relative_distance,
        "layer_norm_epsilon": config.norm_eps,
        "dropout_rate": 0.0,
        "decoder_start_token_id": config.decoder_start_token_id,
    }


def _t5(config: SynthesizerConfig) -> nn.Module:
    from transformers import T5Config, T5EncoderModel

    return TransformersEncoder(T5EncoderModel(T5Config(**t5_sizes(config))))


def _bert(config: SynthesizerConfig) -> nn.Module:
    from transformers import BertConfig, BertModel

    sizes: dict[str, Any] = {
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "num_hidden_layers": config.encoder_layers,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.d_ff,
        "max_position_embeddings": config.max_position_embeddings,
    }
    # The activation of all others; its own takes longer.
    same = {"hidden_act": "relu", "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return TransformersEncoder(BertModel(BertConfig(**sizes, **same), add_pooling_layer=False))


RIVALS: dict[str, Callable[[SynthesizerConfig], nn.Module]] = {
    T5: _t5,
    "Hugging Face BERT": _bert,
    "nn.TransformerEncoder": TorchEncoder,
}
PEERS: dict[str, Callable[[SynthesizerConfig], nn.Module]] = {
    "linformer (peer)": LinformerEncoder,
    "x-transformers (peer)": XTransformersEncoder,
}


def contenders(peers: bool) -> list[str]:
    return [*OURS, *RIVALS, *(PEERS if peers else ())]


def build(name: str, case: Case, sizes: Sizes = SIZES) -> Callable[[Case], Run]:
    """The optimizer of a training step belongs to the model: what it keeps is there after the first step."""
    model = make(name, case.length, sizes)
    if case.kind != "train":
        model.eval()
        return lambda case: _forward(model, batch(case, sizes))
    model.train()
    # The rate does not matter for speed, but must not lead to numbers that do, such as infinity.
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-5, fused=True)
    return lambda case: _step(model, optimizer, batch(case, sizes))


def check(name: str, case: Case, sizes: Sizes = SIZES) -> float | None:
    """Compare with plain execution, and vanilla with T5 as well; None for the models of others.

    What is compared is what will be timed: outputs without gradients, or outputs and the gradients of all parameters.
    Two examples, and not the longest: at their full length, layers are checked alone.
    """
    if name in RIVALS or name in PEERS:
        return None
    case = dataclasses.replace(case, batch=2, length=min(case.length, CHECKED_LENGTH))
    model: Any = make(name, case.length, sizes).train(case.kind == "train")
    example, errors = batch(case, sizes), {}
    if name == "vanilla":
        t5: Any = make(T5, case.length, sizes)
        _copy_t5(model.model, t5.model)
        errors["the output of T5"] = difference(_outputs(model, example), _outputs(t5, example))
    compared: dict[str, Callable[[Any, Batch], list[Tensor]]] = {"outputs": _outputs}
    if case.kind == "train":
        # Single precision is what will be timed; double precision sees smaller mistakes. What runs plainly is double.
        compared |= {"gradients in single precision": _gradients, "gradients": _gradients_in_double}
        weights, model = model.state_dict(), make(name, case.length, {**sizes, **SMOOTH}).train()
        model.load_state_dict(weights)
    for what, compute in compared.items():
        model.model.set_attn_implementation("sdpa")
        found = compute(model, example)
        model.model.set_attn_implementation("eager")
        plain = compute if compute is _outputs else _gradients_in_double
        errors[f"the {what} of plain execution"] = difference(found, plain(model, example))
        model.float()
    for what, error in errors.items():  # NaN is not small either
        if not error <= TOLERANCE:
            raise ValueError(f"{name}, {case}: differs from {what} by {error:.1e}, more than {TOLERANCE:.0e}")
    return max(errors.values())


def difference(found: list[Tensor], expected: list[Tensor]) -> float:
    """The largest, relative to the largest entry of all: what hardly matters is compared at the scale of the rest."""
    largest = torch.stack([b.abs().max() for b in expected]).max()
    apart = torch.stack([(a - b).abs().max() for a, b in zip(found, expected, strict=True)])
    return float(apart.max() / largest)  # of tensors, for which NaN is the largest


def configuration(attention: str, length: int, sizes: Sizes = SIZES, **changes: Any) -> SynthesizerConfig:
    """T5 small for a longest input, without dropout."""
    return presets.t5_small(attention, **(NO_DROPOUT | changes | {"max_position_embeddings": length} | dict(sizes)))


def make(name: str, length: int, sizes: Sizes = SIZES) -> nn.Module:
    """Any spec of ours, or one of the others: token ids and padding (True = none of the text), or None, to vectors."""
    others = RIVALS | PEERS
    torch.manual_seed(1)
    config = configuration("vanilla" if name in others else name, length, sizes, is_encoder_decoder=False)
    return others[name](config) if name in others else TransformersEncoder(SynthesizerModel(config))


@dataclass(frozen=True)
class Batch:
    ids: Tensor
    padding: Tensor | None
    """True = none of the text; None where there is none."""
    target: Tensor
    """Noise to come close to. The mean square of vectors that were just normalised would have no gradient."""

    def loss(self, output: Tensor) -> Tensor:
        return F.mse_loss(output, self.target)


def batch(case: Case, sizes: Sizes = SIZES) -> Batch:
    if case.mask == "causal":
        raise UnsupportedError("an encoder has no causal mask")
    generator, config = torch.Generator().manual_seed(0), configuration("vanilla", case.length, sizes)
    # Neither padding (0) nor the end (1).
    ids = torch.randint(2, config.vocab_size, (case.batch, case.length), generator=generator)
    padding = masks(case.mask, case.batch, case.length).get("key_padding_mask")
    return Batch(ids, padding, torch.randn(*ids.shape, config.d_model, generator=generator))


def _forward(model: nn.Module, batch: Batch) -> Run:
    def run() -> None:
        with torch.no_grad():
            model(batch.ids, batch.padding)

    return run


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch) -> Run:
    def run() -> None:
        batch.loss(model(batch.ids, batch.padding)).backward()
        optimizer.step()
        optimizer.zero_grad()

    return run


def _outputs(model: nn.Module, batch: Batch) -> list[Tensor]:
    # With gradients, layers have other ways than without them.
    with torch.set_grad_enabled(model.training):
        return [model(batch.ids, batch.padding).detach()]


def _gradients(model: nn.Module, batch: Batch) -> list[Tensor]:
    loss = batch.loss(model(batch.ids, batch.padding))
    return list(torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad]))


def _gradients_in_double(model: nn.Module, batch: Batch) -> list[Tensor]:
    return _gradients(model.double(), dataclasses.replace(batch, target=batch.target.double()))


@torch.no_grad()
def _copy_t5(ours: Any, theirs: Any) -> None:
    """Weights by the meaning of their names, moved off their special starts; T5 does not scale the dot product."""
    for parameter in theirs.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.02)
    ours.embedding.weight.copy_(theirs.shared.weight)
    (relative,) = ours.encoder.relative.values()
    relative.table.copy_(theirs.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight.T)
    ours.encoder.norm.weight.copy_(theirs.encoder.final_layer_norm.weight)
    for block, (attention, feed_forward) in zip(
        ours.encoder.blocks, (block.layer for block in theirs.encoder.block), strict=True
    ):
        own, other = block.attention, attention.SelfAttention
        own.synthesizer.query.weight.copy_(other.q.weight * own.head_dim**0.5)
        own.synthesizer.key.weight.copy_(other.k.weight)
        own.value.weight.copy_(other.v.weight)
        own.output.weight.copy_(other.o.weight)
        block.attention_residual.norm.weight.copy_(attention.layer_norm.weight)
        block.feed_forward.up.weight.copy_(feed_forward.DenseReluDense.wi.weight)
        block.feed_forward.down.weight.copy_(feed_forward.DenseReluDense.wo.weight)
        block.feed_forward_residual.norm.weight.copy_(feed_forward.layer_norm.weight)
