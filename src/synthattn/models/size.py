"""Count the parameters and buffers of a model without making it, and compare them with the memory."""

import contextlib
import copy
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from synthattn.models import build
from synthattn.models.configuration import SynthesizerConfig
from synthattn.saved_file import one_line

MOST_LAYERS = 1_000
"""Most layers of a stack. Making them without weights takes half a minute."""
CGROUP = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Files in which Linux limits the memory of a container."""


def check_size(config: SynthesizerConfig) -> None:
    """Raise a ValueError if a model has too many layers, or if its weights exceed the memory.

    On the device ``meta``, weights take no memory, but layers take time.
    """
    if max(config.encoder_layers, config.decoder_layers) > MOST_LAYERS:
        raise ValueError(f"{size_in_words(config)}; at most {MOST_LAYERS:,} layers in a stack can be made")
    limit, needed = memory_limit(), count_numbers(config) * torch.get_default_dtype().itemsize
    if limit is not None and needed > limit and torch.get_default_device().type != "meta":
        raise ValueError(f"{size_in_words(config)}, and there are {limit / 1e9:,.1f} GB of memory; make it smaller")


def size_in_words(config: SynthesizerConfig) -> str:
    """Return a phrase with the number of parameters and buffers of a model and the memory that they take."""
    numbers = count_numbers(config)
    size = numbers * torch.get_default_dtype().itemsize
    return f"a model of this configuration has {numbers:,} numbers, which take {size / 1e9:,.1f} GB"


def count_numbers(config: SynthesizerConfig) -> int:
    """Count the parameters and buffers of the stacks and the embedding that a configuration asks for.

    Equal layers are made once, on the device ``meta``.
    """
    with on_meta_device():
        stacks = [_stack(config, name) for name in _stacks(config)]
    embeddings = 1 if config.tie_word_embeddings else 2
    return sum(stacks) + embeddings * config.vocab_size * config.d_model


@contextlib.contextmanager
def on_meta_device() -> Iterator[None]:
    """Make tensors without memory. Raise a ValueError of one line if sizes are too large for a tensor."""
    try:
        with torch.device("meta"):
            yield
    except RuntimeError as error:
        if "overflow" not in str(error):
            raise
        raise ValueError(f"the sizes of this configuration are too large for a tensor: {one_line(error)}") from error


def memory_limit() -> int | None:
    """Return the bytes of memory that this process can have, or None if the system does not say."""
    limits = []
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for name in CGROUP:
        file = Path(name)
        if file.is_file() and (text := file.read_text().strip()).isdigit():
            limits.append(int(text))
    return min(limits, default=None)


def available_memory() -> int | None:
    """Return the bytes of memory that are free for new processes, or None if the system does not say."""
    limit, file = memory_limit(), Path("/proc/meminfo")
    if not file.is_file():
        return limit
    found = [int(line.split()[1]) * 1024 for line in file.read_text().splitlines() if line.startswith("MemAvailable:")]
    return min([*found, *([] if limit is None else [limit])], default=None)


def _stacks(config: SynthesizerConfig) -> list[Literal["encoder", "decoder"]]:
    if config.is_encoder_decoder:
        return ["encoder", "decoder"]
    return ["decoder"] if config.is_decoder else ["encoder"]


def _stack(config: SynthesizerConfig, name: Literal["encoder", "decoder"]) -> int:
    one = copy.copy(config)
    one.encoder_layers = one.decoder_layers = 1
    total = rest = 0
    for (own, cross), layers in _layers(config, name).items():
        one.encoder_attention = one.decoder_attention = own
        one.cross_attention = cross
        stack = build.encoder(one) if name == "encoder" else build.decoder(one)
        block = _elements(stack.blocks)
        rest = max(rest, _elements(stack) - block)
        total += block if config.share_layers else layers * block
    return total + rest


def _layers(config: SynthesizerConfig, name: Literal["encoder", "decoder"]) -> Counter[tuple[str, str]]:
    """Count how many layers have each pair of attention and cross-attention."""
    layers = config.encoder_layers if name == "encoder" else config.decoder_layers
    own: str | list[str] = getattr(config, f"{name}_attention")
    cross = config.cross_attention if name == "decoder" else ""
    if isinstance(own, str) and isinstance(cross, str):
        return Counter({(own, cross): layers} if layers else {})
    pairs = ([own] * layers if isinstance(own, str) else own, [cross] * layers if isinstance(cross, str) else cross)
    return Counter(zip(*pairs, strict=True))


def _elements(module: nn.Module) -> int:
    return sum(tensor.numel() for tensor in (*module.parameters(), *module.buffers()))
