"""Models in two processes: with copies of all parameters (DDP), and with parameters split over them (FSDP2).

On CPUs the Trainer does not shard, so ``fully_shard`` is used as it is. All cases are in one session.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from two_processes import WORLD, in_two_processes

from model_helpers import DECODING, ENCODING, KINDS, config, ids, labels_for
from synthattn.models.block import Block
from synthattn.training.run import train
from synthattn.training.settings import Settings

pytestmark = pytest.mark.unchecked

STEPS, BATCH, LENGTH = 3, 4, 11
TOLERANCE = 1e-5  # seen is 3e-6

# Every synthesizer, alone or in a mixture, fixed numbers among them; and every other token mixer.
MIXERS = [
    ["vanilla+relative", "dense(window=5)+vanilla"],
    ["random+factorized_random(rank=3)", "fixed_random+factorized_dense"],
    ["lightconv(kernel=3)", "dynamicconv(kernel=5)"],
]
Case = tuple[str, str | list[str], dict[str, Any]]
# An encoder-decoder has all kinds of blocks; of the other models, each has one of the mixers.
CASES: list[Case] = [("seq2seq", spec, {}) for spec in MIXERS]
CASES += [(kind, MIXERS[n % 3], {}) for n, kind in enumerate(KINDS) if kind != "seq2seq"]
CASES += [(kind, ["dense(shared_keys=true)", "linformer(k=7)"], {}) for kind in ("masked-lm", "classifier")]
# Parameters that layers share, or that are used outside of them.
CASES += [
    ("seq2seq", "random+vanilla", {"positions": "relative", "tie_word_embeddings": False}),
    ("causal-lm", "random+dense", {"share_layers": True, "halting": True}),
    ("masked-lm", "random", {"gradient_checkpointing": True}),
]


def name(case: Case) -> str:
    return " ".join(str(part) for part in case if part)


def losses(model: Any, kind: str, part: slice) -> Tensor:
    """Return the losses of some steps, and of a batch after each in eval mode, where layers keep weights."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, eps=1e-5)
    found = []
    for step in range(STEPS):
        x = ids(BATCH, LENGTH, seed=step)
        labels = labels_for(kind, x)
        loss = model.train()(x[part], labels=labels[part]).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            found += [loss.detach(), model.eval()(x[part], labels=labels[part]).loss]
    return torch.stack(found)


def build(kind: str, spec: str | list[str], changes: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    changes = dict(changes)
    checkpointing = changes.pop("gradient_checkpointing", False)
    model = KINDS[kind](config(spec, **changes))
    if checkpointing:
        model.gradient_checkpointing_enable()
    return model


COPIED = [("causal-lm", spec) for spec in DECODING]
COPIED += [("seq2seq", spec) for spec in DECODING[::4]]
COPIED += [(kind, spec) for kind in ("masked-lm", "classifier") for spec in ENCODING[-3:]]


def learn_in_copies(kind: str, spec: str | list[str]) -> None:
    """Fail in the second step if the first left a parameter without a gradient, or if the copies differ."""
    model = DistributedDataParallel(build(kind, spec, {}))  # find_unused_parameters=False
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        x = ids(3, 7, seed=10 * step + dist.get_rank())
        optimizer.zero_grad()
        model(x, labels=labels_for(kind, x)).loss.backward()
        optimizer.step()
    total = torch.stack([p.detach().double().sum() for p in model.parameters()])
    both = [torch.zeros_like(total) for _ in range(WORLD)]
    dist.all_gather(both, total)
    assert torch.equal(*both), (kind, spec)


def session(folder: Path) -> None:
    """Train a share of every batch, and with ``fully_shard`` a share of every parameter."""
    dist.init_process_group("gloo")
    for kind, spec in COPIED:
        learn_in_copies(kind, spec)
    print("copies", len(COPIED))
    rank, mesh = dist.get_rank(), init_device_mesh("cpu", (WORLD,))
    share = BATCH // WORLD
    for case in CASES:
        model = build(*case)
        for module in model.modules():
            if isinstance(module, Block):
                fully_shard(module, mesh=mesh)
        fully_shard(model, mesh=mesh)
        assert all(isinstance(parameter, DTensor) for parameter in model.parameters())
        found = losses(model, case[0], slice(rank * share, (rank + 1) * share))
        dist.all_reduce(found)
        weights = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        if rank == 0:
            torch.save((found / WORLD, weights), folder / name(case))
    dist.barrier()
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sharded")
    (folder / "said").write_text(in_two_processes(session, folder))
    return folder


def test_no_parameter_is_left_out_in_copies(sharded):
    assert (sharded / "said").read_text().count(f"copies {len(COPIED)}") == WORLD


@pytest.mark.parametrize("case", CASES, ids=name)
def test_a_sharded_model_learns_the_same(case, sharded):
    found, weights = torch.load(sharded / name(case))
    model = build(*case)
    expected = losses(model, case[0], slice(None))
    whole = model.state_dict()
    assert set(weights) == set(whole)
    differences = [found - expected, *(weights[key] - whole[key] for key in whole)]
    worst = max(float(difference.abs().max()) for difference in differences)
    print(f"{worst:.1e}")
    assert worst < TOLERANCE


def test_sharding_that_only_accelerate_knows_of_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(ValueError, match=r"leave FSDP out of .* and give --set training.shard=true$"):
        train(Settings(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_adafactor_is_refused_where_the_model_is_sharded(tmp_path):
    """Its first step would mix whole tensors with shards."""
    with pytest.raises(ValueError, match=r"^training.shard needs optimizer=adam"):
        train(Settings().changed(training__shard=True, training__optimizer="adafactor"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_sharding_on_a_processor_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"^training.shard needs accelerators"):
        train(Settings().changed(training__shard=True), tmp_path / "run")
