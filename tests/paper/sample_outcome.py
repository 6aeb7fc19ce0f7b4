"""A table as it could have come out, for tests of page, Markdown and terminal, and to look at. Numbers are made up."""

import math
import random
from typing import Any

from synthattn.compare.results import (
    Difference,
    Histogram,
    Look,
    MetricInfo,
    PublishedNumber,
    Results,
    Run,
    Score,
    Variant,
)
from synthattn.paper.outcome import ClaimVerdict, Outcome
from synthattn.render.numbers import MINUS, NOTHING, TIMES

PLAIN = str.maketrans({MINUS: "-", NOTHING: "none", TIMES: "x"})
"""What our numbers are written with, so that tests can be read."""
HOSTILE = '<b>&"'
PAPER = "Tay et al., Synthesizer (2020, 2021)"
OTHER = "Narang et al. (2021)"

# Name, attention, word perplexity, accuracy, parameters, speed; of the paper: perplexity, parameters, steps per second.
ROWS = [
    ("Transformer", "vanilla", 71.3, 88.1, 2_104_832, 1.0, 38.21, 70.0, 3.9),
    ("Random", "random", 74.9, 87.7, 1_973_760, 1.17, 40.6, 58.0, 4.26),
    (HOSTILE, "random+vanilla", 69.8, 88.6, 2_236_416, 0.91, 40.05, 70.0, 3.79),
    ("Dense", "dense", 72.2, 88.0, 2_039_296, 1.04, 40.88, 53.0, 3.61),
]


def new_row(
    name: str,
    key: str,
    attention: str,
    differs: str = "",
    status: str = "missing",
    reason: str = "",
    speed: tuple[float, float, float] | None = None,
    look: Look | None = None,
    **fields: Any,
) -> Variant:
    """A row of a table."""
    row = Variant(attention, status, reason, name=name, key=key, differs=differs, **fields)
    if speed is not None:
        row.training_speed, row.spread = speed[0], {"training_speed": list(speed[1:])}
    if look is not None:
        row.histograms_before, row.histograms = look.before, look.after
    return row


def new_part(
    name: str,
    title: str,
    scale: str,
    baseline: str,
    metrics: dict[str, MetricInfo],
    rows: list[Variant],
    **fields: Any,
) -> Results:
    """A part of a table."""
    main = next(iter(metrics), "")
    return Results("task", title, baseline, main, [], rows, metrics, name=name, title=title, scale=scale, **fields)


def score(value: float, base: float | None, width: float, seeds: int) -> Score:
    by_seed = [value + width * (seed - (seeds - 1) / 2) / 2 for seed in range(seeds)]
    if base is None:
        return Score(value, value - width, value + width, by_seed)
    gap = value - base
    p_value = math.erfc(1.96 * abs(gap) / width / math.sqrt(2))
    return Score(value, value - width, value + width, by_seed, Difference(gap, gap - width, gap + width, p_value))


def histogram(rng: random.Random, stack: str, layer: int, width: float, bins: int = 20) -> Histogram:
    centre = rng.uniform(0.5, 0.8) * bins
    counts = [math.exp(-(((n - centre) / width / bins) ** 2)) for n in range(bins)]
    return Histogram(stack, layer, [-5 + 5 * n / bins for n in range(bins + 1)], [c / sum(counts) for c in counts])


def look(rng: random.Random, layers: int) -> Look:
    places = [(stack, layer) for stack in ("encoder", "decoder") for layer in range(layers)]
    return Look(
        [histogram(rng, stack, layer, 0.06) for stack, layer in places],
        [histogram(rng, stack, layer, 0.2) for stack, layer in places],
    )


def runs(part: str, key: str, seeds: int) -> list[Run]:
    return [
        Run(
            seed,
            f"lm1b/records/{part}/{key}-{seed}.json",
            f"synthattn reproduce lm1b --scale cpu --only {key} --seed {seed}",
            700.0 + 20 * seed,
        )
        for seed in range(1, seeds + 1)
    ]


def news(layers: int) -> Results:
    """Make a part with everything that a part can have; Dense has failed."""
    rng = random.Random(0)
    rows = []
    for n, (name, attention, perplexity, _, parameters, speed, theirs, millions, steps) in enumerate(ROWS):
        key = attention
        doubt = "the baseline may differ in more than its attention" if name == HOSTILE else ""
        source = OTHER if name == "Dense" else PAPER
        row = new_row(
            name,
            key,
            attention,
            "mix=sum" if "+" in attention else "",
            "done",
            wanted_seeds=3,
            parameters=parameters,
            gigaflop=0.137 * (n + 3),
            scores={
                "word-perplexity": score(perplexity, None if n == 0 else 71.3, 1.3, 3),
                "token-perplexity": score(perplexity / 3, None if n == 0 else 71.3 / 3, 0.4, 3),
            },
            speed=(speed, speed - 0.03, speed + 0.02),
            look=look(rng, layers),
            runs=runs("news", key, 3),
            published={
                "word-perplexity": PublishedNumber(theirs, source, doubt),
                "parameters": PublishedNumber(millions, source, doubt),
                "speed": PublishedNumber(steps, source, doubt),
            },
        )
        if name == "Dense":
            row = new_row(
                name, key, attention, status="failed", reason="loss was not finite at step 311", wanted_seeds=3
            )
            row.published = {"word-perplexity": PublishedNumber(theirs, source)}
        rows.append(row)
    return new_part(
        "news",
        "News sentences of WMT",
        "cpu",
        "Transformer",
        {
            "word-perplexity": MetricInfo("the exponential of the mean loss for each word", False),
            "token-perplexity": MetricInfo("the exponential of the mean loss for each token", False),
        },
        rows,
        published_metrics={"word-perplexity": "perplexity, LM1B"},
        published_note="On LM1B, without seeds or intervals; steps are not known.",
        published_doubt="No single configuration has these numbers of parameters.",
        facts={"data": "news_lm, 40,000 sentences", "preset": "cpu", "steps": "1,600", "learning rate": "0.003"},
        rates={"0.0015": 4.512, "0.003": 4.307, "0.006": 4.398},
        rate_runs={rate: f"lm1b/records/news/rate-{rate}.json" for rate in ("0.0015", "0.003", "0.006")},
        note="The paper's task is not known in all details.",
    )


def topics() -> Results:
    """Little of it is done: one seed, one row missing, nothing published, and another scale."""
    rows = []
    for n, (name, attention, _, accuracy, parameters, *_) in enumerate(ROWS[:3]):
        key = attention
        row = new_row(name, key, attention, status="done", parameters=parameters, runs=runs("topics", key, 1))
        row.scores = {"accuracy": score(accuracy, None if n == 0 else 88.1, 0.9, 1)}
        rows.append(row)
    rows.append(new_row("Linformer", "linformer", "linformer", wanted_seeds=2))
    return new_part(
        "topics",
        "Topics",
        "tiny",
        "Transformer",
        {"accuracy": MetricInfo("percent of the texts that are given their topic", True)},
        rows,
    )


VERDICTS = [
    ClaimVerdict(
        "Attention that never looks at the text is nearly as good as the dot product.",
        "abstract",
        "news",
        "cpu",
        "does not hold",
        "Random is 3.6 worse (95 % interval 2.3 to 4.9, p < 0.001), which is more than 1 % of 71.3.",
        "40.60 against 38.21: 6 % worse.",
        False,
    ),
    ClaimVerdict(
        f"A mixture of both {HOSTILE} is better than the dot product alone.",
        "Table 2",
        "news",
        "cpu",
        "holds",
        "It is 1.5 better (95 % interval 0.2 to 2.8, p = 0.02).",
        "40.05 against 38.21 on this data, but 28.47 against 27.67 in translation.",
        False,
    ),
    ClaimVerdict(
        "Random learns as fast as the dot product and is faster to train.",
        "section 4.2",
        "news",
        "cpu",
        "undecided",
        "1.17 times as fast, but only one machine was measured.",
        "4.26 against 3.90 steps per second.",
        True,
    ),
    ClaimVerdict(
        "Synthesizers are better encoders than Linformer.",
        "section 4.5",
        "topics",
        "tiny",
        "not run",
        "Linformer is missing.",
    ),
]


def sample_outcome(layers: int = 2) -> Outcome:
    return Outcome(
        "lm1b",
        "Table 2: language modelling",
        [news(layers), topics()],
        ["Speed is the median of 5 interleaved rounds.", f"A note with {HOSTILE} in it."],
        ["synthattn 0.4.0", "torch 2.9.0+cpu", "a processor with 2 cores"],
        verdicts=list(VERDICTS),
    )
