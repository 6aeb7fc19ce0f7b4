"""Synthetic attention as an attention function of transformers, and the hook that hands it the tokens.

Only this module and ``folder.py`` use transformers, and only inside functions.
"""

from typing import Any

from torch import Tensor, nn

from synthattn.attend import attention_weights, run
from synthattn.convert.dot_product import ModelTokens
from synthattn.convert.masks import ReadMask, read_mask
from synthattn.convert.plan import Installed
from synthattn.convert.positions import check_positions, find_positions
from synthattn.engine.call import CacheableLogits, Call
from synthattn.engine.projection import LazyValues
from synthattn.logits import Bias, Logits
from synthattn.synthesizers import Tokens
from synthattn.tracing import is_tracing

NAME = "synthattn"
"""The name of the attention function in transformers' tables."""

OTHER_TOKENS = ("key_value_states", "encoder_hidden_states")
"""Arguments of an attention class that hold the tokens to attend to, where these are not its own."""


def register() -> None:
    """Tell transformers the attention function, and a mask function: without one it would make no masks."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)


def hand_over(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Pass the tokens of an attention, and the number of tokens before them, on to its attention function.

    A forward pre-hook. Attention classes of transformers hand all further keyword arguments through.
    """
    installed: Installed = module.synthattn  # pyright: ignore[reportAssignmentType]
    names = installed.arguments
    given = dict(zip(names, args, strict=False)) | kwargs
    if any(name in names and given.get(name) is not None for name in OTHER_TOKENS):
        raise ValueError(f"{installed.path} attends to other tokens than its own, which synthetic attention cannot")
    past = given.get("past_key_values")
    start = _length(installed, module, past) if past is not None else 0
    return args, {**kwargs, "synthattn_tokens": given[names[0]], "synthattn_start": start}


def _length(installed: Installed, module: nn.Module, past: Any) -> int | Tensor:
    """Return the number of tokens in a cache."""
    past = getattr(past, "self_attention_cache", past)
    index = module.layer_idx
    layer = past.layers[index] if index < len(past.layers) else None  # pyright: ignore
    sliding = getattr(layer, "is_sliding", False) or getattr(module, "sliding_window", None) is not None
    if sliding and installed.reads_positions:
        raise ValueError(
            f"{installed.path} has a sliding window, whose cache does not keep positions; generate with use_cache=False"
        )
    length = past.get_seq_length(index)
    if not isinstance(length, Tensor):
        return length
    # A static cache counts in place, and before the attention function is called.
    return length.clone() if is_tracing(length) else int(length)


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Compute the attention of a converted module: the function that transformers calls.

    Returns:
        The heads, ``(batch, q, heads, width)``, and the attention weights if they were asked for.
    """
    installed: Installed = module.synthattn  # pyright: ignore[reportAssignmentType]
    tokens, start = kwargs.get("synthattn_tokens"), kwargs.get("synthattn_start", 0)
    _check(installed, query, value, tokens, kwargs)
    assert tokens is not None
    (batch, q), k = tokens.shape[:2], value.shape[2]
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    # The slots of a static cache that are still empty are masked, or beyond the queries of a causal call.
    if attention_mask is None and causal and k > q > 1:
        k = q
    elif not is_tracing(value) and isinstance(start, int) and k > start + q:
        k = start + q
    key, value = key[:, :, :k], value[:, :, :k]
    read = read_mask(attention_mask, causal, batch, q, k)
    positions, key_positions = _positions(installed, read, kwargs.get("position_ids"), start, q, k, value)
    groups = installed.heads // value.shape[1]
    if groups > 1:
        key, value = (heads.repeat_interleave(groups, dim=1) for heads in (key, value))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    first: Any = 0 if positions is not None or isinstance(start, Tensor) else start
    asked = ModelTokens(tokens, positions, projected=query, start=first, scale=scale)
    # Only the number of tokens counts in a memory whose keys are made.
    memory = Tokens(value[:, 0], key_positions, keys=key)
    biases = [bias for bias in (read.bias, position_bias) if bias is not None]
    added = Logits(tuple(Bias(_shared(bias[..., :k])) for bias in biases))
    call = Call(
        lambda: module.synthesizer(asked, memory) + added,  # pyright: ignore
        LazyValues(value, None, installed.heads, value.shape[-1]),
        read.mask,
        q,
        dropout,
        _cacheable(installed, module, asked, memory) if not biases else None,
    )
    heads = run(call).transpose(1, 2)
    if not (installed.returns_weights or (installed.config is not None and _asked(installed.config, value, kwargs))):
        return heads, None
    return heads, attention_weights(call.logits, read.mask).expand(batch, -1, -1, -1)


def _asked(config: Any, value: Tensor, kwargs: dict[str, Any]) -> bool:
    """Return True if attention weights were asked for. GPT-2 keeps the argument that does, but they are collected."""
    if kwargs.get("output_attentions") or config.output_attentions:
        return True
    if is_tracing(value):
        return False
    try:
        from transformers.utils.output_capturing import _active_collector
    except ImportError:
        return False
    collected = _active_collector.get()
    return collected is not None and "attentions" in collected


def _check(installed: Installed, query: Tensor, value: Tensor, tokens: Any, kwargs: dict[str, Any]) -> None:
    if not isinstance(tokens, Tensor):
        raise ValueError(f"{installed.path}.forward was called without its hooks; call the module")
    for name in ("softcap", "s_aux"):
        if kwargs.get(name) is not None:
            raise ValueError(f"{installed.path} has {name}, which synthetic attention does not compute")
    if tokens.dim() != 3 or tokens.shape[0] != value.shape[0] or tokens.shape[1] != query.shape[2]:
        raise ValueError(
            f"{installed.path} attends within parts of its input: {tuple(tokens.shape)} tokens, "
            f"{tuple(query.shape)} queries; synthetic attention needs (batch, length, d_model)"
        )


def _positions(
    installed: Installed, read: ReadMask, position_ids: Any, start: int | Tensor, q: int, k: int, value: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    if not installed.reads_positions:
        return None, None
    ids = position_ids if isinstance(position_ids, Tensor) else None
    positions, keys = find_positions(read.padding, ids, start, q, k, installed.max_length, value)
    if installed.max_length is not None:
        check_positions(installed.path, positions, start + q, installed.max_length)
    return positions, keys


def _shared(bias: Tensor) -> Tensor:
    """Return a bias without its batch axis where that is 1, which keeps logits independent of the input."""
    return bias[0] if bias.shape[0] == 1 else bias


def _cacheable(installed: Installed, module: nn.Module, query: Tokens, memory: Tokens) -> CacheableLogits | None:
    """Return logits that depend on no input and start at position 0, or None if these do not."""
    placed = query.positions is not None or memory.positions is not None
    if placed or not installed.input_independent or query.start != 0:
        return None

    def build(q: int, k: int) -> Logits:
        vectors = query.vectors[:1, :1]  # only their number counts
        return module.synthesizer(*(Tokens(vectors.expand(1, length, -1)) for length in (q, k)))  # pyright: ignore

    assert isinstance(module.synthesizer, nn.Module)
    return CacheableLogits(installed.weights, module.synthesizer, build)
