"""Speed and memory of the attention layer, as ratios within one run.

Every variant is timed against three alternatives for the same input: the layer's own fused ``vanilla``,
``torch.nn.MultiheadAttention``, and a straightforward implementation of the same variant (logits for every example,
softmax, product). Rounds are interleaved, so that a slow moment of the machine hits all contenders alike, and the
median of the ratios is taken. Peak memory is measured in a process of its own, above what the inputs and the layer
take, for unmasked input.

    python benchmarks/attention.py [--json FILE] [--rounds 7] [--shapes 16x512 ...] [--variants random ...]
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from synthattn import SyntheticAttention, reference
from synthattn.masks import from_torch

D_MODEL, HEADS = 512, 8
VARIANTS = [
    "vanilla",
    "random",
    "fixed_random",
    "factorized_random",
    "dense",
    "factorized_dense",
    "random+dense",
    "random+vanilla",
    "dense+vanilla",
    "factorized_random+vanilla",
    "relative+vanilla",
    "dense(window=15)",
]
SHAPES = [(64, 128), (16, 512), (4, 2048)]
MASKS = ["full", "causal", "padded"]
MODES = ["eval", "train"]
BATCH_FREE = ["random", "fixed_random", "factorized_random"]


@dataclass(frozen=True)
class Case:
    variant: str
    batch: int
    length: int
    mask: str
    mode: str


@dataclass(frozen=True)
class Result:
    """Seconds per call of the variant and, for ratios, how many times faster it is than the alternatives."""

    case: Case
    seconds: float
    spread: float
    to_vanilla: float
    to_multihead: float
    to_straightforward: float
    megabytes: float | None
    straightforward_megabytes: float | None


class Straightforward(nn.Module):
    """What one would write first: the full logits of every example, masked, softmaxed, multiplied."""

    def __init__(self, layer: SyntheticAttention) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, *, key_padding_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        layer, (batch, length, _) = self.layer, x.shape
        logits = layer.logits(x).expand(batch, -1, -1, -1)
        mask, _ = from_torch(key_padding_mask, None, is_causal, batch, layer.num_heads, length, length)
        allowed = mask.full(length, length, x.device)
        if allowed is not None:
            logits = logits.masked_fill(~allowed, float("-inf"))
        value = layer.value(x).unflatten(-1, (layer.num_heads, -1)).transpose(1, 2)
        return layer.output((logits.softmax(-1) @ value).transpose(1, 2).flatten(2))


class Multihead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(D_MODEL, HEADS, batch_first=True)

    def forward(self, x: Tensor, *, key_padding_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        length = x.shape[1]
        mask = torch.ones(length, length, dtype=torch.bool).triu(1) if is_causal else None
        return self.attention(
            x,
            x,
            x,
            key_padding_mask=key_padding_mask,
            attn_mask=mask,
            is_causal=is_causal,
            need_weights=False,
        )[0]


def masks(kind: str, batch: int, length: int) -> dict[str, Any]:
    if kind == "causal":
        return {"is_causal": True}
    if kind == "padded":
        # Lengths from half to the whole, as in a batch of sentences sorted into buckets.
        kept = torch.linspace(length // 2, length, batch).long()
        return {"key_padding_mask": torch.arange(length) >= kept[:, None]}
    return {}


def call(layer: nn.Module, case: Case) -> Callable[[], None]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(case.batch, case.length, D_MODEL, generator=generator)
    arguments = masks(case.mask, case.batch, case.length)
    if case.mode == "eval":
        layer.eval()

        def run() -> None:
            with torch.no_grad():
                layer(x, **arguments)

        return run
    layer.train()
    x.requires_grad_()
    gradient = torch.randn(case.batch, case.length, D_MODEL, generator=generator)

    def step() -> None:
        x.grad = None
        layer.zero_grad(set_to_none=True)
        layer(x, **arguments).backward(gradient)

    return step


def make(kind: str, case: Case) -> nn.Module:
    torch.manual_seed(1)
    if kind == "multihead":
        return Multihead()
    variant = "vanilla" if kind == "vanilla" else case.variant
    layer = SyntheticAttention(D_MODEL, HEADS, variant, max_length=case.length)
    return Straightforward(layer) if kind == "straightforward" else layer


def check(case: Case) -> None:
    """What is timed must first be right."""
    layer = make("ours", case).train(case.mode == "train")
    x = torch.randn(2, case.length, D_MODEL)
    arguments = masks(case.mask, 2, case.length)
    with torch.set_grad_enabled(layer.training):
        found, (expected, _) = layer(x, **arguments), reference.attention(layer, x, **arguments)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    if layer.training:
        parameters = list(layer.parameters())
        ours, theirs = (torch.autograd.grad(y.square().mean(), parameters) for y in (found, expected))
        largest = max(float(gradient.abs().max()) for gradient in theirs)
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=largest * 1e-5)


def seconds(runs: dict[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    for run in runs.values():  # warm up
        run()
    times: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds):
        # There and back again: nobody always comes after the one that empties the cache.
        for name in list(runs) if number % 2 == 0 else reversed(runs):
            start = time.perf_counter()
            runs[name]()
            times[name].append(time.perf_counter() - start)
    return times


def peak_megabytes(kind: str, case: Case) -> float:
    """Memory above that of the layer and its input, from a process that does nothing else."""
    command = [sys.executable, __file__, "--memory", json.dumps([kind, asdict(case)])]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def print_memory(request: str) -> None:
    kind, fields = json.loads(request)
    case = Case(**fields)
    layer = make(kind, case)
    # The libraries' own buffers, which a tiny input needs as well, do not count.
    call(layer, Case(case.variant, 1, min(case.length, 64), case.mask, case.mode))()
    run = call(layer, case)
    forget_high_water()
    before = high_water()
    run()
    print(high_water() - before)


def forget_high_water() -> None:
    """Let the peak start again from what is in use now."""
    Path("/proc/self/clear_refs").write_text("5")


def high_water() -> float:
    """Peak resident memory in megabytes. (ru_maxrss would start from the peak of the parent process.)"""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return float("nan")


def measure(case: Case, rounds: int) -> Result:
    check(case)
    kinds = ("vanilla", "multihead", "ours", "straightforward")
    times = seconds({kind: call(make(kind, case), case) for kind in kinds}, rounds)
    ours = times["ours"]

    def ratio(kind: str) -> float:
        """The median over rounds of how many times faster we are; neighbours in time share the machine's moods."""
        return statistics.median(theirs / mine for theirs, mine in zip(times[kind], ours, strict=True))

    return Result(
        case,
        statistics.median(ours),
        (max(ours) - min(ours)) / statistics.median(ours),
        ratio("vanilla"),
        ratio("multihead"),
        ratio("straightforward"),
        *(peak_megabytes(kind, case) if case.mask == "full" else None for kind in ("ours", "straightforward")),
    )


def bars(results: list[Result]) -> list[tuple[str, float, float]]:
    """What the layer promises at batch 16, length 512: (claim, measured, bound)."""
    claims = []
    for r in results:
        c = r.case
        what = f"{c.variant}, {c.mask}, {c.mode}"
        if (c.batch, c.length) == (16, 512):
            if c.variant in BATCH_FREE:
                claims.append((f"{what}: times vanilla", r.to_vanilla, 2.0 if c.mode == "eval" else 1.7))
            if c.variant in ("dense", "random+vanilla") and c.mode == "eval":
                claims.append((f"{what}: times vanilla", r.to_vanilla, 0.95))
            if c.variant.endswith("+vanilla") and c.mode == "train":
                claims.append((f"{what}: times vanilla", r.to_vanilla, 0.75))
        claims.append((f"{what}, {c.batch}x{c.length}: times straightforward", r.to_straightforward, 1.0))
    return claims


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write all figures to this file")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write them as a page")
    parser.add_argument("--record", type=Path, metavar="FILE", help="measure nothing, show what --json wrote")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (at least 7 for the bars)")
    parser.add_argument("--shapes", nargs="+", default=[f"{b}x{n}" for b, n in SHAPES], metavar="BATCHxLENGTH")
    parser.add_argument("--variants", nargs="+", default=VARIANTS)
    parser.add_argument("--masks", nargs="+", default=MASKS, choices=MASKS)
    parser.add_argument("--modes", nargs="+", default=MODES, choices=MODES)
    parser.add_argument("--memory", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        print_memory(options.memory)
        return

    record = json.loads(options.record.read_text()) if options.record else run(options)
    results = [Result(**(fields | {"case": Case(**fields["case"])})) for fields in record["results"]]
    print("\n" + verdict(results))
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    if options.markdown:
        options.markdown.write_text(page(record, results))


def run(options: argparse.Namespace) -> dict[str, Any]:
    record = {
        "machine": cpu_name(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "rounds": options.rounds,
        "results": [],
    }
    print(heading(record))
    for shape in options.shapes:
        batch, length = (int(n) for n in shape.split("x"))
        for mode in options.modes:
            for mask in options.masks:
                print(f"\nbatch {batch}, length {length}, {mask}, {mode}")
                print(
                    f"  {'variant':28}{'ms':>9}{'spread':>8}{'vanilla':>9}{'nn.MHA':>8}{'simple':>8}"
                    f"{'MB':>8}{'simple':>8}"
                )
                for variant in options.variants:
                    r = measure(Case(variant, batch, length, mask, mode), options.rounds)
                    record["results"].append(asdict(r))
                    if options.json:  # what was measured is not lost if the rest is interrupted
                        options.json.write_text(json.dumps(record, indent=1) + "\n")
                    print(
                        f"  {r.case.variant:28}{r.seconds * 1e3:9.1f}{r.spread:8.0%}{r.to_vanilla:8.2f}x"
                        f"{r.to_multihead:7.2f}x{r.to_straightforward:7.2f}x"
                        f"{show(r.megabytes):>8}{show(r.straightforward_megabytes):>8}",
                        flush=True,
                    )
    return record


def show(megabytes: float | None) -> str:
    return "" if megabytes is None else f"{megabytes:.0f}"


def heading(record: dict[str, Any]) -> str:
    return (
        f"{record['machine']}, {record['threads']} threads, torch {record['torch']}, float32, d_model {D_MODEL}, "
        f"{HEADS} heads; median of {record['rounds']} interleaved rounds; a ratio above 1 means faster."
    )


def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.machine()


def verdict(results: list[Result]) -> str:
    claims = bars(results)
    short = [claim for claim in claims if claim[1] < claim[2]]
    lines = [f"{len(claims) - len(short)} of {len(claims)} bars hold"]
    return "\n".join(lines + [f"  falls short: {what} {got:.2f}, bar {bound:.2f}" for what, got, bound in short])


def page(record: dict[str, Any], results: list[Result]) -> str:
    """The results as Markdown: a table per shape and mode, the masks side by side."""
    lines = [
        "# Speed and memory of the attention layer",
        "",
        "Written by `benchmarks/attention.py`, not by hand. " + heading(record),
        "",
        "Each cell: times as fast as the layer's own fused `vanilla` / as `torch.nn.MultiheadAttention` / as a "
        "straightforward implementation of the same variant; then peak memory in MB / that of the straightforward one.",
    ]
    shapes = dict.fromkeys((r.case.batch, r.case.length, r.case.mode) for r in results)
    for batch, length, mode in shapes:
        here = {
            (r.case.variant, r.case.mask): r
            for r in results
            if (r.case.batch, r.case.length, r.case.mode) == (batch, length, mode)
        }
        kinds = list(dict.fromkeys(mask for _, mask in here))
        lines += [
            "",
            f"## batch {batch}, length {length}, {mode}",
            "",
            f"| variant | {' | '.join(kinds)} |",
            "|---" * (len(kinds) + 1) + "|",
        ]
        for variant in dict.fromkeys(variant for variant, _ in here):
            cells = [
                f"{r.to_vanilla:.2f} / {r.to_multihead:.2f} / {r.to_straightforward:.2f}"
                + ("" if r.megabytes is None else f"; {show(r.megabytes)} / {show(r.straightforward_megabytes)}")
                for r in (here[variant, kind] for kind in kinds)
            ]
            lines.append(f"| `{variant}` | {' | '.join(cells)} |")
    lines += ["", "## Bars", "", "```", verdict(results), "```", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
