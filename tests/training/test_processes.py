"""Training in two processes is training in one: the same batches, the same losses, the same weights.

All runs of two processes are in one session.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file
from torch.nn.parallel import DistributedDataParallel
from two_processes import WORLD, in_two_processes

from synthattn.training import record
from synthattn.training.run import MODEL, SETTINGS, Stopped, train
from synthattn.training.settings import Settings, from_dict

pytestmark = pytest.mark.unchecked

# Copies of models with every other mixer are in test_sharding.py.
FAMILY = ["fixed_random", "dense", "factorized_random(rank=3)+vanilla", "random+dense"]
STEPS, STOP = 4, 2
# Sums of the same numbers in another order: seen are 2e-7 of a loss, and 3e-7 in a weight.
LOSSES, WEIGHTS = 1e-5, 1e-5


def settings(data: Path, **changes: Any) -> Settings:
    """Batches of 6 examples at most and of 1 at least, most of them odd, two to a step."""
    made = from_dict(
        {
            "data": {"source": str(data), "task": "sentence-modeling", "tokenizer": "words", "vocab_size": 120},
            "model": {"preset": "tiny", "d_model": 24, "num_heads": 3, "d_ff": 37},
            "training": {
                "steps": STEPS,
                "batch_tokens": 40,
                "accumulation": 2,
                "warmup": 3,
                "log_every": 1,
                "evaluate_every": 2,
                # A gradient that is nothing but rounding, such as that of the only key a token sees, must not count.
                "epsilon": 1e-5,
            },
        }
    )
    return made.changed(**changes)


def runs(folder: Path) -> dict[str, Settings]:
    """Return the settings of all runs that are trained in one process and in two."""
    texts, pairs = folder / "texts", folder / "pairs"
    found = {f"lm {spec}": settings(texts, model__attention=spec) for spec in FAMILY}
    translation = {"data__task": "translation", "training__label_smoothing": 0.1}
    found["translation"] = settings(pairs, model__attention="random+vanilla", **translation)
    # Batches of a single example: one of the processes has nothing to learn from.
    found["single"] = settings(texts, model__attention="dense", training__batch_tokens=30)
    return found


def write_data(folder: Path) -> None:
    draw = np.random.default_rng(0)
    for name in ("texts", "pairs"):
        (folder / name).mkdir(parents=True)
    for split, count in (("train", 61), ("validation", 7), ("test", 5)):
        lines = [[f"w{n}" for n in draw.integers(0, 17, draw.integers(3, 25))] for _ in range(count)]
        (folder / "texts" / f"{split}.txt").write_text("".join(" ".join(line) + "\n" for line in lines))
        rows = ["\t".join((" ".join(line[:9]), " ".join(reversed(line[:9])))) + "\n" for line in lines]
        (folder / "pairs" / f"{split}.tsv").write_text("source\ttarget\n" + "".join(rows))


def train_all(folder: Path, where: str) -> None:
    for name, chosen in runs(folder).items():
        train(chosen, folder / where / name)


def session(folder: Path) -> None:
    """Run the part of one process."""
    sent, send = [], DistributedDataParallel._sync_buffers
    DistributedDataParallel._sync_buffers = lambda self: sent.append(send(self))
    train_all(folder, "two")
    print(f"sent buffers {len(sent)} times")
    train(runs(folder)["lm random+dense"], folder / "stopped", resume=True)
    # One process is told to stop; both do, at the same step.
    chosen = settings(folder / "texts", training__steps=1000, training__save_every=1000, training__log_every=10)
    from synthattn.training.trainer import SynthesizerTrainer

    step, rank = SynthesizerTrainer.training_step, int(os.environ["RANK"])

    def told(self: Any, *args: Any) -> Any:
        if rank == 1 and self.state.global_step == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(self, *args)

    SynthesizerTrainer.training_step = told  # pyright: ignore[reportAttributeAccessIssue]
    try:
        train(chosen, folder / "told")
    except Stopped as stopped:
        (folder / f"told-{rank}").write_text(str(stopped.step))
    SynthesizerTrainer.training_step = step
    # A table, of which the first process scores every run while the other would go on.
    from synthattn.cli import reproduce

    table = folder / "table"
    assert reproduce.run("lm1b", "tiny", None, "random", 1, table, folder / "work", False, False, False, True) == 0
    # And the command itself.
    from synthattn.cli import main

    sys.argv = ["synthattn", "train", "--output", str(folder / "command"), "--data", str(folder / "texts")]
    sys.argv += ["--task", "sentence-modeling", "--preset", "tiny", "--steps", "3", "--set", "data.tokenizer=words"]
    sys.argv += ["--vocab-size", "120"]
    main()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all runs, in ``one`` and in ``two`` processes."""
    folder = tmp_path_factory.mktemp("processes")
    write_data(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SYNTHATTN_CACHE", str(folder / "cache"))
        train_all(folder, "one")
        stop_in_the_middle(folder / "stopped", runs(folder)["lm random+dense"], patch)
        (folder / "stdout").write_text(in_two_processes(session, folder))
    return folder


def stop_in_the_middle(run: Path, chosen: Settings, patch: pytest.MonkeyPatch) -> None:
    from synthattn.training.trainer import SynthesizerTrainer

    step, told = SynthesizerTrainer.training_step, []

    def interrupted(self: Any, *args: Any) -> Any:
        if self.state.global_step == STOP - 1 and not told:  # a second time would not wait for the step
            told.append(True)
            signal.raise_signal(signal.SIGINT)
        return step(self, *args)

    with patch.context() as inner:
        inner.setattr(SynthesizerTrainer, "training_step", interrupted)
        with pytest.raises(Stopped, match=f"stopped at step {STOP}"):
            train(chosen, run)


def assert_close(found: Path, expected: Path) -> tuple[float, float]:
    """The largest relative difference of a loss, and the largest difference of a weight."""
    records = [record.load(run) for run in (found, expected)]
    assert [one.status for one in records] == ["done", "done"]
    curves = [np.array([*one.loss, *one.validation]) for one in records]
    assert curves[0].shape == curves[1].shape
    assert (curves[0][:, 0] == curves[1][:, 0]).all()
    losses = float(np.abs(curves[0] / curves[1] - 1).max())
    weights = [load_file(run / MODEL / "model.safetensors") for run in (found, expected)]
    difference = max(float((weights[0][n] - weights[1][n]).abs().max()) for n in weights[1])
    assert losses < LOSSES
    assert difference < WEIGHTS
    for name in ("tokens", "epochs", "steps", "data", "model", "best_step"):
        assert getattr(records[0], name) == getattr(records[1], name), name
    return losses, difference


@pytest.mark.parametrize("name", runs(Path()))
def test_two_processes_are_as_good_as_one(name, both):
    print(*assert_close(both / "two" / name, both / "one" / name))


def test_frozen_tables_are_not_sent_in_every_step(both):
    said = (both / "stdout").read_text()
    assert said.count("sent buffers 0 times") == WORLD
    assert "broadcast_buffers" not in said


def test_batches_are_as_uneven_as_they_can_be(both):
    """Batches of equal sizes would make the test above easy."""
    from synthattn.data.batching import TokenBatches
    from synthattn.training.run import prepare_data

    sizes = {}
    for name in ("lm dense", "single"):
        chosen = runs(both)[name]
        lengths = prepare_data(chosen).train.lengths
        batches = TokenBatches(lengths, chosen.training.batch_tokens, chosen.training.seed).batches()
        sizes[name] = [len(batch) for batch in batches[: 2 * STEPS]]
    assert any(size % 2 and size > 1 for size in sizes["lm dense"])
    assert 1 in sizes["single"]


def test_a_run_of_one_process_goes_on_with_two(both):
    print(*assert_close(both / "stopped", both / "one" / "lm random+dense"))
    assert record.load(both / "stopped").times["starts"] == 2


def test_all_processes_stop_at_the_same_step(both):
    assert [(both / f"told-{rank}").read_text() for rank in (0, 1)] == ["5", "5"]
    found = record.load(both / "told")
    assert (found.status, found.steps) == ("stopped", 5)


def test_a_table(both):
    from synthattn.compare.records import load

    records = both / "table" / "records" / "lm1b" / "tiny" / "news"
    found = {str(path.relative_to(records)): load(path).record for path in sorted(records.rglob("*.json.xz"))}
    assert {name.removesuffix(".json.xz") for name in found} == {
        "rates/0.001", "rates/0.003", "transformer-0", "random-0"
    }  # fmt: skip
    assert {one.status for one in found.values()} == {"done"}
    assert (both / "table" / "README.md").is_file()


def test_the_command(both):
    found = record.load(both / "command")
    assert (found.status, found.steps) == ("done", 3)
    assert (both / "command" / SETTINGS).is_file()
    assert json.loads((both / "command" / MODEL / "config.json").read_text())["model_type"] == "synthesizer"
    assert (both / "stdout").read_text().count("The model, weights") == 1, "the first process alone speaks"
