"""Low-rank inference of layers that were trained: how exact it is on text they have not seen, and how fast."""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from synthattn.bench.record import LowRank, Record
from synthattn.bench.timing import interleaved
from synthattn.compression import compress
from synthattn.data.batching import pad
from synthattn.layers import SyntheticAttention
from synthattn.models.block import Block
from synthattn.tasks.encoding import EncodedSplit
from synthattn.training.model import load, load_tokenizer_of
from synthattn.training.prepare import encode_for_evaluation, open_parts
from synthattn.training.run import final_model, saved_settings

LENGTHS = (512, 1024, 2048, 4096, 8192)
"""Beyond what a layer was trained for, its matrix is stretched: the smooth matrix that a long one would be."""
EXAMPLES, TOKENS = 512, max(LENGTHS)


@dataclass(frozen=True)
class Seen:
    """What a layer was given for text that it was not trained on."""

    x: Tensor
    padding: Tensor | None

    def stream(self) -> Tensor:
        """The vectors of all tokens, one after the other, padding left out."""
        return self.x.flatten(0, 1) if self.padding is None else self.x[~self.padding]


def run(
    trained: Path,
    error: float,
    record: Record,
    rounds: int,
    note: Callable[[str], None],
    keep: Callable[[Record], None],
    lengths: Sequence[int] = LENGTHS,
) -> None:
    """Every batch-free layer of an encoder: with its own inputs, and stretched to longer ones."""
    settings = saved_settings(trained)
    model: Any = load(final_model(trained)).eval()
    layers = dict(_layers(model))
    if not layers:
        raise ValueError(
            f"{trained} has no batch-free attention in an encoder; low-rank inference is for random, fixed_random and "
            "factorized_random without a causal mask"
        )
    (part, *_) = open_parts(settings.data)
    split = next(iter(part.evaluation_splits(settings.evaluation.split).values()))
    tokenizer = load_tokenizer_of(final_model(trained))
    encoded = encode_for_evaluation(part, split, tokenizer, model.config.max_position_embeddings)
    seen = _inputs(model, layers, encoded, tokenizer.pad_token_id)
    note(f"\nlow-rank inference, error {error:g}, text of {part.source.name}, {split}")
    done = {each.case for each in record.low_rank}
    for name, layer in layers.items():
        assert layer.max_length is not None
        own = seen[name]
        cases = [(own[0].x.shape[1], own[0].x, own[0].padding)]
        stream = torch.cat([each.stream() for each in own])
        cases += [(n, _repeated(stream, n)[None], None) for n in lengths if n > layer.max_length]
        for length, x, padding in cases:
            if (trained.name, name, length, x.shape[0], error) in done:
                continue
            found = _measure(trained.name, name, layer, length, x, padding, error, rounds)
            record.low_rank.append(found)
            keep(record)
            how = f"ranks {', '.join(map(str, found.ranks))}" if found.ranks else found.note
            size = f"{found.batch:3} x {length:<6}"
            note(f"  {name:28}{size}{found.speedup:6.2f}x exact  error {found.error_found:.1e}  {how}")


def _measure(
    run: str,
    name: str,
    layer: SyntheticAttention,
    length: int,
    x: Tensor,
    padding: Tensor | None,
    error: float,
    rounds: int,
) -> LowRank:
    exact = copy.deepcopy(layer)
    if length > (layer.max_length or 0):
        exact.resize_max_length(length, "interpolate")
    thin = copy.deepcopy(exact)
    (done,) = compress(thin, error)
    with torch.no_grad():
        expected, found = (each(x, key_padding_mask=padding) for each in (exact, thin))
        off = torch.linalg.vector_norm(found - expected, dim=-1) / torch.linalg.vector_norm(expected, dim=-1)
        # What stands in the place of padding is nobody's output.
        off = off if padding is None else off[~padding]

        def call(layer: SyntheticAttention) -> Callable[[], object]:
            def once() -> None:
                with torch.no_grad():
                    layer(x, key_padding_mask=padding)

            return once

        times = interleaved({"exact": call(exact), "low rank": call(thin)}, rounds)
    # The bound is computed with each call; where it is too wide, so is the result, exactly.
    unused = "the bound did not suffice for these inputs" if done.pays and torch.equal(found, expected) else ""
    return LowRank(
        name,
        length,
        x.shape[0],
        error,
        float(off.max()),
        list(done.ranks),
        times.faster("low rank", "exact"),
        done.exact or unused,
        run,
    )


def _layers(model: torch.nn.Module) -> Iterator[tuple[str, SyntheticAttention]]:
    for name, block in model.named_modules():
        if isinstance(block, Block) and not block.causal and isinstance(block.attention, SyntheticAttention):
            layer = block.attention
            if layer.synthesizer.batch_free and layer.max_length is not None:
                yield f"{name}.attention", layer


def _inputs(
    model: Any, layers: dict[str, SyntheticAttention], encoded: EncodedSplit, filler: int
) -> dict[str, list[Seen]]:
    """What every layer sees of the texts, batch by batch, until there are enough tokens."""
    seen: dict[str, list[Seen]] = {name: [] for name in layers}

    def watch(name: str) -> Callable[..., None]:
        return lambda module, args, kwargs: seen[name].append(Seen(args[0], kwargs.get("key_padding_mask")))

    hooks = [layer.register_forward_pre_hook(watch(name), with_kwargs=True) for name, layer in layers.items()]
    texts = encoded.source
    run = model.get_encoder() if model.config.is_encoder_decoder else model
    tokens, rows = 0, iter(range(len(texts)))
    try:
        with torch.no_grad():
            while tokens < TOKENS and (chosen := list(islice(rows, EXAMPLES))):
                ids = [texts[row] for row in chosen]
                tokens += sum(map(len, ids))
                batch, mask = _padded(ids, filler)
                run(input_ids=batch, attention_mask=mask)
    finally:
        for hook in hooks:
            hook.remove()
    return seen


def _padded(ids: list[Any], filler: int) -> tuple[Tensor, Tensor]:
    batch = torch.from_numpy(pad(ids, filler)).long()
    lengths = torch.tensor([len(each) for each in ids])
    return batch, (torch.arange(batch.shape[1]) < lengths[:, None]).long()


def _repeated(stream: Tensor, length: int) -> Tensor:
    """The first tokens; from the start again where a small test set has too few."""
    times = -(-length // len(stream))
    return stream.repeat(times, 1)[:length]
