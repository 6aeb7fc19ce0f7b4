"""Time a converted BERT of base size beside the original: ``converted.py [--batch 4] [--length 128] [--rounds 3]``.

Both have random weights, and all self-attention is replaced. Each round runs every model once, in changing order, so
that whatever else the machine does hits all. The results are medians of the ratio within a round.
"""

import argparse
from functools import partial
from typing import Any

import torch
from transformers import BertConfig, BertForMaskedLM

from synthattn import replace_attention
from synthattn.bench.timing import interleaved

SPECS = ("vanilla", "random", "dense", "random+vanilla")


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


def main() -> None:
    parser = argparse.ArgumentParser(description="Time a converted BERT of base size beside the original.")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    every = models(options.length)
    tokens = torch.randint(1000, 30000, (options.batch, options.length))
    print(f"BERT base, {options.batch} texts of {options.length} tokens, {torch.get_num_threads()} threads")
    for training in (False, True):
        runs = {name: partial(step, model, tokens, training) for name, model in every.items()}
        times = interleaved(runs, options.rounds)
        for name in SPECS:
            ratio, spread = times.faster(name, "original"), times.spread(name)
            print(f"{'training' if training else 'inference'} {name}: {ratio:.2f} times as fast (spread {spread:.0%})")


if __name__ == "__main__":
    main()
