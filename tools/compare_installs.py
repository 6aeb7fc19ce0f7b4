"""Compare the speed of two versions of this package, which take turns in one process each.

``python tools/compare_installs.py OLD NEW`` takes the ``src`` folders of two checkouts with compiled kernels. For each
case, it prints the time of OLD divided by the time of NEW; below 1, NEW is slower. Run it on a quiet machine. In each
round, both versions run the case. The ratio is the median over rounds. Cases below ``--least`` are measured once more
with more rounds, and the second ratio counts: the lowest of many noisy ratios are also low by chance.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

SPECS = (
    "vanilla,dense,random,fixed_random,factorized_random,factorized_dense,random+vanilla,dense+vanilla,random+dense,"
    "factorized_random+vanilla,vanilla+relative,dense(window=15)"
)
MASKS = ("full", "causal", "padded")
SECONDS = 0.15
"""Seconds that a version runs a case in each round."""


def cases(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for shape, spec, mode in itertools.product(
        given.shapes.split(","), given.attention.split(","), given.modes.split(",")
    ):
        if mode == "generate":
            continue
        batch, length = map(int, shape.split("x"))
        for mask in given.masks.split(","):
            yield {"spec": spec, "batch": batch, "length": length, "mode": mode, "mask": mask}
    if "generate" in given.modes:
        for spec in given.attention.split(","):
            yield {"spec": spec, "batch": 8, "length": 64, "mode": "generate", "mask": "full"}


class Worker:
    """A process that runs one version of the package."""

    def __init__(self, source: str) -> None:
        environment = os.environ | {"PYTHONPATH": source, "GOMP_SPINCOUNT": "10000"}
        command = [sys.executable, __file__, "--work"]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, message: dict[str, Any]) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"a worker ended with code {self.process.wait()} at {message}")
        return json.loads(answer)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("old", help="the src folder of a checkout")
    parser.add_argument("new", help="the src folder of another one")
    parser.add_argument("--shapes", default="64x128,16x512,4x2048", help="batch x length, several with commas")
    parser.add_argument("--attention", default=SPECS)
    parser.add_argument("--modes", default="eval,train,generate")
    parser.add_argument("--masks", default=",".join(MASKS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--again", type=int, default=31, help="rounds for the cases that were below --least")
    parser.add_argument("--least", type=float, default=0.98, help="exit with 1 if a ratio is below")
    parser.add_argument("--json", help="a file for all ratios")
    given = parser.parse_args()
    workers = [Worker(given.old), Worker(given.new)]
    found = [measure(workers, case, given.rounds) for case in cases(given)]
    first = summary("all cases", found, given.least)
    again = [measure(workers, case, given.again) for case in first]
    low = summary("low cases again", again, given.least) if again else []
    if given.json:
        with open(given.json, "w") as file:
            json.dump({"first": found, "again": again}, file, indent=1)
    return 1 if low else 0


def measure(workers: list[Worker], case: dict[str, Any], rounds: int) -> dict[str, Any]:
    """Time a case with both versions in turns, print the ratio, and return the case with its figures."""
    case = {key: case[key] for key in ("spec", "batch", "length", "mode", "mask")}
    times: list[list[float]] = [[], []]
    for worker in workers:
        worker.ask({"prepare": case})
    for number in range(rounds):
        for n in (0, 1) if number % 2 == 0 else (1, 0):
            times[n].append(workers[n].ask({"time": True}))
    ratios = sorted(old / new for old, new in zip(*times, strict=True))
    ratio, milliseconds = statistics.median(ratios), statistics.median(times[1]) * 1e3
    print(f"{ratio:6.3f}  ({ratios[0]:.3f} to {ratios[-1]:.3f})  {milliseconds:9.2f} ms  {name_of(case)}", flush=True)
    return case | {"ratio": ratio, "ratios": ratios, "milliseconds": milliseconds}


def name_of(case: dict[str, Any]) -> str:
    return f"{case['mode']} {case['mask']} {case['spec']} {case['batch']}x{case['length']}"


def summary(title: str, found: list[dict[str, Any]], least: float) -> list[dict[str, Any]]:
    """Print the median ratio of some cases and the names of the low ones, and return those."""
    low = [one for one in found if one["ratio"] < least]
    median = statistics.median(one["ratio"] for one in found)
    names = ", ".join(map(name_of, low)) or "none"
    print(f"{title}: {len(found)}, median {median:.3f}; {len(low)} below {least}: {names}", flush=True)
    return low


# In a worker ----------------------------------------------------------------------------------------------------


def work() -> None:
    step: Any = None
    for line in sys.stdin:
        message = json.loads(line)
        if "prepare" in message:
            step = prepare(message["prepare"])
            step()
            step()
            print("true", flush=True)
            continue
        start, count = time.perf_counter(), 0
        while count == 0 or time.perf_counter() - start < SECONDS:
            step()
            count += 1
        print(json.dumps((time.perf_counter() - start) / count), flush=True)


def prepare(case: dict[str, Any]) -> Any:
    """Return a function that runs the case once."""
    import torch

    torch.manual_seed(0)
    if case["mode"] == "generate":
        return prepare_generation(case)
    from synthattn import SyntheticAttention

    batch, length = case["batch"], case["length"]
    layer = SyntheticAttention(512, 8, case["spec"], max_length=length)
    x = torch.randn(batch, length, 512)
    masks: dict[str, Any] = {}
    if case["mask"] == "causal":
        masks["is_causal"] = True
    if case["mask"] == "padded":
        lengths = torch.linspace(length // 2, length, batch).long()
        masks["key_padding_mask"] = torch.arange(length)[None] >= lengths[:, None]
    if case["mode"] == "eval":
        layer.eval()

        def evaluate() -> None:
            with torch.no_grad():
                layer(x, **masks)

        return evaluate
    x.requires_grad_()
    above = torch.randn(batch, length, 512)

    def train() -> None:
        layer(x, **masks).backward(above)
        for parameter in (*layer.parameters(), x):
            parameter.grad = None

    return train


def prepare_generation(case: dict[str, Any]) -> Any:
    import torch

    from synthattn.models import SynthesizerForConditionalGeneration, presets

    config = presets.demo(case["spec"], vocab_size=8000, max_position_embeddings=128)
    model = SynthesizerForConditionalGeneration(config).eval()
    source = torch.randint(2, 8000, (case["batch"], 32))

    def generate() -> None:
        with torch.no_grad():
            model.generate(source, max_new_tokens=case["length"], min_new_tokens=case["length"], num_beams=1)

    return generate


if __name__ == "__main__":
    sys.exit(work() if "--work" in sys.argv else main())
