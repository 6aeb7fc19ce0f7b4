"""Train a model that is sharded over two processes on the CPU, save it, stop it, resume it, and look at its weights.

    python -m tools.check_sharding

Takes a minute or two. accelerate shards on accelerators only; here it is told to do so on CPUs, too. All that follows
is what the Trainer does with FSDP2, with gloo. Sharded runs must have the losses and the weights of one
process, whichever weights are kept, and also when they were stopped and resumed.
"""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType
from safetensors.torch import load_file

from synthattn.training import checkpoints, record, run
from synthattn.training.model import load
from synthattn.training.settings import Settings, from_dict
from synthattn.training.trainer import SynthesizerTrainer

ROOT, INSIDE = Path(__file__).parents[1], "--inside"
STEPS, STOP, TOLERANCE = 8, 5, 1e-5
KEEP = ("last", "best", "average")


def settings(folder: Path, **changes: Any) -> Settings:
    often = {"log_every": 1, "evaluate_every": 2, "epsilon": 1e-5}
    return from_dict(
        {
            "data": {
                "source": str(folder / "data"),
                "task": "language-modeling",
                "tokenizer": "words",
                "vocab_size": 130,
            },
            "model": {"preset": "tiny", "attention": "random+vanilla"},
            "training": {"steps": STEPS, "batch_tokens": 96, "accumulation": 2, "warmup": 2} | often,
        }
    ).changed(**changes)


def shard_on_cpus() -> None:
    """Let accelerate treat processes on CPUs as those of accelerators."""
    begin = AcceleratorState.__init__

    def begun(self: Any, *args: Any, fsdp_plugin: Any = None, **options: Any) -> None:
        begin(self, *args, fsdp_plugin=fsdp_plugin, **options)
        if fsdp_plugin is not None:
            self.fsdp_plugin = fsdp_plugin
        if self.__dict__.get("fsdp_plugin") is not None:  # each further call begins with the kind of the processes
            self.distributed_type = DistributedType.FSDP

    AcceleratorState.__init__ = begun
    run.check_hardware = lambda training: None


def session(folder: Path) -> None:
    """Do the part of one process."""
    torch.set_num_threads(1)
    shard_on_cpus()
    for keep in KEEP:
        run.train(settings(folder, training__shard=True, training__keep=keep), folder / f"sharded {keep}")
    step, told = SynthesizerTrainer.training_step, []

    def interrupted(self: Any, *args: Any) -> Any:
        assert self.is_fsdp_enabled
        assert any("DTensor" in type(one).__name__ for one in self.model.parameters())
        if self.state.global_step == STOP - 1 and not told and os.environ["RANK"] == "1":
            told.append(True)
            os.kill(os.getpid(), signal.SIGTERM)
        return step(self, *args)

    SynthesizerTrainer.training_step = interrupted  # pyright: ignore[reportAttributeAccessIssue]
    chosen, place = settings(folder, training__shard=True, training__keep="best"), folder / "resumed best"
    try:
        run.train(chosen, place)
    except run.Stopped as stopped:
        assert stopped.step == STOP, stopped.step
    else:
        raise AssertionError("the run was not stopped")
    (kept, _) = checkpoints.last_good(place)
    assert kept is not None
    assert kept.name == f"checkpoint-{STOP}"
    load(kept)  # a checkpoint is a model
    run.train(chosen, place, resume=True)


def main() -> None:
    if sys.argv[1:2] == [INSIDE]:
        session(Path(sys.argv[2]))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["SYNTHATTN_CACHE"] = str(folder / "cache")
        (folder / "data").mkdir()
        for split, count in (("train", 70), ("validation", 9), ("test", 9)):
            lines = (" ".join(f"w{(7 * n + n * k) % 31}" for k in range(3 + n % 11)) for n in range(count))
            (folder / "data" / f"{split}.txt").write_text("".join(f"{line}\n" for line in lines))
        torch.set_num_threads(1)
        for keep in KEEP:
            run.train(settings(folder, training__keep=keep), folder / f"whole {keep}")
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
        done = subprocess.run([*launcher, "-m", "tools.check_sharding", INSIDE, name], cwd=ROOT)
        if done.returncode:
            sys.exit(done.returncode)
        for kind in ("sharded last", "sharded best", "sharded average", "resumed best"):
            expected = folder / f"whole {kind.split()[1]}"
            found, other = (record.load(place) for place in (folder / kind, expected))
            weights, others = (
                load_file(place / run.MODEL / checkpoints.WEIGHTS) for place in (folder / kind, expected)
            )
            # A sharded model is saved with a copy of each tied weight.
            assert set(weights) >= set(others), set(others) - set(weights)
            for name in set(weights) - set(others):
                assert any(torch.equal(weights[name], weights[other]) for other in others), name
            pairs = zip([*found.loss, *found.validation], [*other.loss, *other.validation], strict=True)
            losses = max(abs(mine[1] / yours[1] - 1) for mine, yours in pairs)
            worst = max(float((weights[n] - others[n]).abs().max()) for n in others)
            assert found.weights == other.weights, (found.weights, other.weights)
            print(f"{kind}: losses differ by {losses:.1e}, weights by {worst:.1e}; kept are those {found.weights}")
            assert losses < TOLERANCE
            assert worst < TOLERANCE


if __name__ == "__main__":
    main()
