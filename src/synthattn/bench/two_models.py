"""Speed and memory of a model on given batches, beside another model in the same process."""

import gc
import statistics
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from synthattn.bench.timing import Speed, quartiles, undisturbed
from synthattn.data.batching import TokenBatches
from synthattn.models.generation import SynthesizerGenerationMixin
from synthattn.tasks.inputs import Inputs

Batch = Mapping[str, Tensor]


TRIES = 3
"""A speed whose rounds differ a lot is measured again, and takes at most so many times as many rounds."""


@dataclass(frozen=True)
class Measured:
    """Speeds beside the baseline's, and memory."""

    speeds: dict[str, Speed]
    """``training_speed``: forward, backward and the optimizer's step. ``inference_speed``: a forward pass without
    gradients. ``generation_speed``: greedy decoding with the cache, for models that write."""
    training_memory: int
    """Bytes, see :func:`training_memory`."""


def measure(
    build: Callable[[], nn.Module],
    baseline: Callable[[], nn.Module],
    batches: Sequence[Batch],
    rounds: int = 7,
    new_tokens: int = 32,
) -> Measured:
    """Measure a model against a baseline, both new and on the same batches, one after the other in every round.

    Args:
        build: makes the model.
        baseline: makes what it is compared with.
        batches: as the models take them for training; a round is the next one of them.
        rounds: of training and of inference; half as many of generation; up to three times as many where the ratios
            of the rounds differ a lot.
        new_tokens: written in a round of generation; fewer where positions end before.

    Training memory is that of the :func:`heaviest` batch. Chance, threads and the garbage collector are left as they
    were.
    """
    if rounds < 1 or not batches:
        raise ValueError(f"speed needs at least one round and one batch, got {rounds} and {len(batches)}")
    with undisturbed():
        ratios = _speeds(build(), baseline(), batches, rounds, new_tokens)
    return Measured({name: speed(found) for name, found in ratios.items()}, training_memory(build, heaviest(batches)))


def speed(ratios: list[float]) -> Speed:
    """Return the median of ratios with their quartiles."""
    return Speed(statistics.median(ratios), *quartiles(ratios), len(ratios))


def typical(inputs: Inputs, batch_tokens: int, count: int = 4) -> list[dict[str, Tensor]]:
    """A few batches of training, full ones."""
    made = TokenBatches(inputs.lengths, batch_tokens, 0, order=inputs.order).batches()
    full = sorted(made, key=lambda batch: -int(inputs.lengths[batch].sum()))[: max(count, len(made) // 2)]
    return [inputs.batch(batch) for batch in full[:: max(1, len(full) // count)][:count]]


def heaviest(batches: Sequence[Batch]) -> Batch:
    """The batch with the most pairs of tokens, for which attention needs the most memory."""

    def pairs(batch: Batch) -> int:
        texts = [batch[name] for name in ("input_ids", "labels") if name in batch]
        return sum(text.shape[0] * text.shape[1] ** 2 for text in texts if text.dim() == 2)

    return max(batches, key=pairs)


def training_memory(build: Callable[[], nn.Module], batch: Batch) -> int:
    """Bytes that a training step holds at its peak: parameters, gradients, moments of Adam, activations, the batch.

    On the CPU they are counted exactly, tensor by tensor, and come out the same every time. What a kernel of torch
    takes while it runs and gives back at its end cannot be seen; a fused attention has such memory, though little. On
    CUDA the allocator tells, which rounds sizes up and sees all of it but the workspaces that libraries keep.
    """
    with undisturbed():
        peak, device = _peak(build(), batch)
        if device.type != "cuda":
            return peak
        gc.collect()
        # What is still there when the model is gone was not the model's.
        return peak - torch.cuda.memory_allocated(device)


def _peak(model: nn.Module, batch: Batch) -> tuple[int, torch.device]:
    device = _device(model)
    batch = _on(device, batch)
    step = training_step(model)
    if device.type == "cuda":
        step(batch)  # moments are there from the second step on
        torch.cuda.reset_peak_memory_stats(device)
        step(batch)
        return torch.cuda.max_memory_allocated(device), device
    memory = LiveMemory()
    for tensor in (*model.parameters(), *model.buffers(), *batch.values()):
        memory.add(tensor)
    with memory:
        step(batch)
        step(batch)
    return memory.peak, device


class LiveMemory(TorchDispatchMode):
    """Counts the bytes of all tensors that operations make while it is on, the backward pass included."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._sizes: dict[int, int] = {}
        self._references: dict[int, weakref.ref[Any]] = {}

    def add(self, tensor: Tensor) -> None:
        """Count the memory behind a tensor until it is given back; what several tensors share counts once."""
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key not in self._sizes:
            # A storage has one Python object, which lives as long as anything holds the storage, autograd included.
            self._references[key] = weakref.ref(storage, lambda _: self._forget(key))
        self.now += size - self._sizes.get(key, 0)
        self._sizes[key] = size
        self.peak = max(self.peak, self.now)

    def _forget(self, key: int) -> None:
        self.now -= self._sizes.pop(key)
        del self._references[key]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for part in tree_leaves(result):
            if isinstance(part, Tensor):
                self.add(part)
        return result


def _speeds(
    ours: nn.Module, theirs: nn.Module, batches: Sequence[Batch], rounds: int, new_tokens: int
) -> dict[str, list[float]]:
    batches = [_on(_device(ours), batch) for batch in batches]
    # One kind after the other: what a model keeps while its parameters stay the same is then kept, as in real use.
    ratios = {
        "training_speed": _ratios(training_step(ours), training_step(theirs), batches, rounds),
        "inference_speed": _ratios(inference_step(ours), inference_step(theirs), batches, rounds),
    }
    if _writes(ours):
        prompt, new_tokens = _cut_for(ours.config, new_tokens)
        prompts = [prompt(batch) for batch in batches]
        writers = generation_step(ours, new_tokens), generation_step(theirs, new_tokens)
        ratios["generation_speed"] = _ratios(*writers, prompts, (rounds + 1) // 2)
    return ratios


Run = Callable[[Batch], None]


def _ratios(ours: Run, theirs: Run, batches: Sequence[Batch], rounds: int) -> list[float]:
    """Return how many times faster ours is, for each round; goes on for more rounds while these differ a lot."""
    for run in (ours, theirs):
        run(heaviest(batches))  # warm up
    ratios: list[float] = []
    for number in range(TRIES * rounds):
        if number and number % rounds == 0 and not speed(ratios).uncertain:
            break
        batch = batches[number % len(batches)]
        seconds: dict[Run, float] = {}
        # Taking turns: nobody always comes after the other.
        for run in (ours, theirs) if number % 2 == 0 else (theirs, ours):
            start = time.perf_counter()
            run(batch)
            if batch["input_ids"].is_cuda:
                torch.cuda.synchronize(batch["input_ids"].device)
            seconds[run] = time.perf_counter() - start
        ratios.append(seconds[theirs] / seconds[ours])
    return ratios


def training_step(model: Any) -> Run:
    """Return a function that trains a model on a batch."""
    model.train()
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    fused = all(parameter.device.type in ("cpu", "cuda") for parameter in parameters)
    # The rate does not matter for speed, but must not lead to numbers that do, such as infinity.
    optimizer = torch.optim.AdamW(parameters, lr=1e-5, fused=fused)

    def run(batch: Batch) -> None:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return run


def inference_step(model: Any) -> Run:
    """Return a function that runs a model on a batch without gradients."""
    model.eval()
    # Scoring a text needs no cache; encoders do not know the option.
    options = {"use_cache": False} if _writes(model) else {}

    def run(batch: Batch) -> None:
        with torch.no_grad():
            model(**batch, **options)

    return run


def generation_step(model: Any, new_tokens: int) -> Run:
    """Return a function that writes new tokens after the texts of a batch."""
    model.eval()

    def run(batch: Batch) -> None:
        model.generate(**batch, do_sample=False, num_beams=1, max_new_tokens=new_tokens, min_new_tokens=new_tokens)

    return run


def _cut_for(config: Any, new_tokens: int) -> tuple[Callable[[Batch], Batch], int]:
    """How to make a prompt of a batch, and how many tokens to write, so that no position is beyond the last."""
    last = config.max_position_embeddings
    if config.is_encoder_decoder:
        return _whole_texts, min(new_tokens, last)
    new_tokens = min(new_tokens, max(1, last // 2))
    return lambda batch: _first_halves(batch, max(1, last - new_tokens)), new_tokens


def _whole_texts(batch: Batch) -> Batch:
    return {name: batch[name] for name in ("input_ids", "attention_mask") if name in batch}


def _first_halves(batch: Batch, longest: int) -> Batch:
    """The start of every text that has as many tokens as half of the longest, without any padding."""
    ids = batch["input_ids"]
    kept = batch["attention_mask"] != 0 if "attention_mask" in batch else torch.ones_like(ids, dtype=torch.bool)
    length = min(longest, max(1, int(kept.sum(-1).max()) // 2))
    texts = [row[tokens][:length] for row, tokens in zip(ids, kept, strict=True) if int(tokens.sum()) >= length]
    prompt = torch.stack(texts)
    return {"input_ids": prompt, "attention_mask": torch.ones_like(prompt)}


def _writes(model: nn.Module) -> bool:
    return isinstance(model, SynthesizerGenerationMixin)


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def _on(device: torch.device, batch: Batch) -> Batch:
    return {name: tensor.to(device) for name, tensor in batch.items()}
