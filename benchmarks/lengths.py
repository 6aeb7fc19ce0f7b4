"""Perplexity of longer inputs than those of training: ``lengths.py FOLDER [--steps 2000] [--seeds 3] [--plot FILE]``.

Every kind of attention trains on language modelling at length 128, and is then evaluated on the same text in pieces of
128, 256, 512 and 1024 tokens. Attention with a table of positions cannot take longer inputs than it was trained on.
The command can be stopped and started again; finished runs are not repeated.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from synthattn.models import SynthesizerForCausalLM
from synthattn.render.charts import Line, Lines
from synthattn.saved_file import write_text
from synthattn.training.evaluation import evaluate
from synthattn.training.memory import keep_memory
from synthattn.training.prepare import open_for_evaluation
from synthattn.training.progress import Display
from synthattn.training.record import SETTINGS, final_model
from synthattn.training.run import train
from synthattn.training.settings import Settings, from_dict

ATTENTION = ["toeplitz", "toeplitz+vanilla", "relative", "relative+vanilla", "random", "random+vanilla", "vanilla"]
LENGTHS = [128, 256, 512, 1024]
RESULTS = "lengths.json"


def settings(attention: str, seed: int, given: argparse.Namespace) -> Settings:
    return from_dict(
        {
            "data": {"task": "language-modeling", "source": given.data},
            "model": {
                "preset": given.preset,
                "attention": attention,
                "fields": {"max_position_embeddings": LENGTHS[0]},
            },
            "training": {"steps": given.steps, "seed": seed},
            "evaluation": {"limit": given.texts},
        }
    )


def perplexities(run: Path, chosen: Settings) -> dict[str, float | None]:
    """Return the perplexity per token at each length; None where a table of positions ends before."""
    found: dict[str, float | None] = {}
    folder = final_model(run)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    model: Any = SynthesizerForCausalLM.from_pretrained(folder).eval()
    parts = open_for_evaluation(chosen.data, chosen.evaluation.split)
    longest = model.base_model.decoder.longest
    for length in LENGTHS:
        if longest is not None and length > longest:
            found[str(length)] = None
            continue
        model.config.max_position_embeddings = length
        scored = evaluate(model, tokenizer, parts, chosen.evaluation).scored
        found[str(length)] = next(one.score.value for name, one in scored.items() if "token" in name)
    return found


def chart(results: dict[str, dict[str, dict[str, float | None]]]) -> Lines:
    """Draw the mean over seeds, with a band from the lowest to the highest seed."""
    lines = []
    for place, (attention, by_seed) in enumerate(results.items()):
        values = {
            length: [value for seed in by_seed.values() if (value := seed[str(length)]) is not None]
            for length in LENGTHS
        }
        points = [(length, statistics.mean(found)) for length, found in values.items() if found]
        band = [(length, min(found), max(found)) for length, found in values.items() if found]
        tips = [f"{attention}, length {length}: {value:.1f}" for length, value in points]
        lines.append(Line(attention, place, points, tips, attention, band))
    return Lines("Perplexity per token by length of the input", "length", "perplexity per token", lines, log=True)


def table(results: dict[str, dict[str, dict[str, float | None]]]) -> str:
    rows = [
        f"| attention, trained at {LENGTHS[0]} | {' | '.join(map(str, LENGTHS))} |",
        f"|---|{'---:|' * len(LENGTHS)}",
    ]
    for attention, by_seed in results.items():
        cells = []
        for length in LENGTHS:
            found = [value for seed in by_seed.values() if (value := seed[str(length)]) is not None]
            spread = f" ({min(found):.1f} to {max(found):.1f})" if len(found) > 1 else ""
            cells.append(f"{statistics.mean(found):.1f}{spread}" if found else "cannot: its table ends")
        rows.append(f"| `{attention}` | {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--attention", default=",".join(ATTENTION))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--preset", default="cpu")
    parser.add_argument("--data", default="builtin:docs")
    parser.add_argument("--texts", type=int, default=500, help="texts of the validation split")
    parser.add_argument("--plot", type=Path, help="write the plot as SVG")
    given = parser.parse_args()
    if given.seeds < 1 or given.steps < 1:
        sys.exit(f"--seeds and --steps must be at least 1, got {given.seeds} and {given.steps}")
    keep_memory()
    given.folder.mkdir(parents=True, exist_ok=True)
    file = given.folder / RESULTS
    results = json.loads(file.read_text()) if file.is_file() else {}
    for seed in range(given.seeds):
        for attention in given.attention.split(","):
            if str(seed) in results.get(attention, {}):
                continue
            run = given.folder / f"{attention}-{seed}"
            chosen = settings(attention, seed, given)
            train(chosen, run, Display(), " ".join(sys.argv), resume=(run / SETTINGS).is_file())
            results.setdefault(attention, {})[str(seed)] = perplexities(run, chosen)
            write_text(file, json.dumps(results, indent=1) + "\n")
            print(attention, seed, results[attention][str(seed)], flush=True)
    print(table(results))
    if given.plot is not None:
        given.plot.write_text(chart(results).svg(), encoding="utf-8")
        print(f"wrote {given.plot}", file=sys.stderr)


if __name__ == "__main__":
    main()
