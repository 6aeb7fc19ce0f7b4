"""Time a converted BERT of base size beside the original.

    python benchmarks/converted.py [--batch 4] [--length 128] [--rounds 5] [--json docs/convert/speed.json]

Both have random weights, and all self-attention is replaced. Each round runs every model once, in changing order, so
that whatever else the machine does hits all. The results are medians of the ratio within a round.
``python tools/update_conversions.py --speed`` writes them into docs/convert.md.
"""

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertForMaskedLM

from synthattn import replace_attention
from synthattn.bench.record import cpu_name
from synthattn.bench.timing import interleaved

SPECS = ("vanilla", "random", "dense", "random+vanilla")
MODES = ("inference", "training")


def models(length: int) -> dict[str, Any]:
    """Return the original and its conversions."""
    found: dict[str, Any] = {}
    for name in ("original", *SPECS):
        torch.manual_seed(0)
        found[name] = BertForMaskedLM(BertConfig())
        if name != "original":
            replace_attention(found[name], name, length)
    return found


def step(model: Any, tokens: torch.Tensor, training: bool) -> None:
    """Run a forward pass, and a backward pass in training."""
    model.train(training)
    if not training:
        with torch.no_grad():
            model(tokens)
        return
    model.zero_grad()
    model(tokens, labels=tokens).loss.backward()


def measure(batch: int, length: int, rounds: int) -> dict[str, Any]:
    """Return how many times as fast as the original each conversion is, with the spread of its times."""
    every = models(length)
    tokens = torch.randint(1000, 30000, (batch, length))
    found: dict[str, Any] = {
        "command": f"python benchmarks/converted.py --batch {batch} --length {length} --rounds {rounds}",
        "machine": {"processor": cpu_name(), "threads": torch.get_num_threads(), "torch": torch.__version__},
        "batch": batch,
        "length": length,
        "rounds": rounds,
    }
    for mode in MODES:
        times = interleaved(
            {name: partial(step, one, tokens, mode == "training") for name, one in every.items()}, rounds
        )
        seconds = times.median("original")
        found[mode] = {"original": {"seconds": round(seconds, 3), "spread": round(times.spread("original"), 3)}}
        for name in SPECS:
            ratio, spread = times.faster(name, "original"), times.spread(name)
            found[mode][name] = {"faster": round(ratio, 3), "spread": round(spread, 3)}
            print(f"{mode} {name}: {ratio:.2f} times as fast (spread {spread:.0%})", flush=True)
    found["parameters"] = {name: sum(p.numel() for p in one.parameters()) for name, one in every.items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Time a converted BERT of base size beside the original.")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="save the figures in this file")
    options = parser.parse_args()
    found = measure(options.batch, options.length, options.rounds)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
