"""A comparison as it could have been, for tests of tables, page and picture, and to look at."""

import base64
import math
import random

from synthattn.compare.results import (
    Difference,
    Heads,
    Histogram,
    MetricInfo,
    MixtureShares,
    Published,
    Results,
    Sample,
    Score,
    Variant,
)

# Attention, BLEU, chrF, parameters, training speed, whether decoding keeps keys. Numbers are made up.
VARIANTS = [
    ("vanilla", 41.2, 62.1, 3_214_336, 1.0, True),
    ("fixed_random", 33.9, 55.0, 2_821_120, 1.31, False),
    ("random", 38.7, 60.2, 3_018_240, 1.27, False),
    ("factorized_random", 38.1, 59.6, 2_850_816, 1.24, False),
    ("dense", 39.6, 60.9, 3_149_312, 1.08, False),
    ("factorized_dense", 39.1, 60.5, 3_061_504, 0.97, False),
    ("random+dense", 39.9, 61.2, 3_346_432, 0.94, False),
    ("dense+vanilla", 41.6, 62.4, 3_542_528, 0.83, True),
    ("random+vanilla", 42.4, 63.0, 3_411_456, 0.91, True),
]
# From table 2 of the paper, English to German.
PAPER = {
    "vanilla": 27.67,
    "fixed_random": 23.89,
    "random": 27.27,
    "factorized_random": 27.30,
    "dense": 27.43,
    "factorized_dense": 27.32,
    "random+dense": 27.68,
    "dense+vanilla": 27.57,
    "random+vanilla": 28.47,
}
SAMPLES = [
    Sample("the old dog sleeps in the garden .", "der alte Hund schläft im Garten ."),
    Sample("she had seen the small houses .", "sie hatte die kleinen Häuser gesehen ."),
    Sample("we will not help them because it rains .", "wir werden ihnen nicht helfen , weil es regnet ."),
]


def score(value: float, base: float | None, width: float = 0.8, seeds: int = 3) -> Score:
    by_seed = [round(value + width * (seed - 1) / 4, 4) for seed in range(seeds)]
    if base is None:
        return Score(value, value - width, value + width, by_seed)
    gap = value - base
    near = 0.75 * width
    p_value = max(0.002, math.erfc(1.96 * abs(gap) / near / math.sqrt(2)))
    return Score(value, value - width, value + width, by_seed, Difference(gap, gap - near, gap + near, p_value))


def heads(rng: random.Random, stack: str, layer: int, count: int, size: int) -> Heads:
    maps, peaks, entropies = [], [], []
    for _ in range(count):
        sharpness, offset = rng.uniform(0, 3), rng.choice([-2, -1, 0, 1])
        rows = []
        for i in range(size):
            row = [
                math.exp(-sharpness * abs(j - i - offset) / 2 + rng.gauss(0, 0.5))
                if stack == "encoder" or j <= i
                else 0.0
                for j in range(size)
            ]
            rows.append([weight / sum(row) for weight in row])
        peak = max(max(row) for row in rows)
        maps.append(base64.b64encode(bytes(round(255 * weight / peak) for row in rows for weight in row)).decode())
        peaks.append(peak)
        entropies.append(
            sum(-w * math.log(w) for row in rows for w in row if w) / size / math.log(size) if size > 1 else 0.0
        )
    return Heads(stack, layer, size, 2 * size, maps, peaks, entropies)


def histogram(rng: random.Random, stack: str, layer: int, bins: int = 20) -> Histogram:
    centre, width = rng.uniform(0.3, 0.8) * bins, rng.uniform(0.1, 0.2) * bins
    counts = [math.exp(-(((bin - centre) / width) ** 2)) for bin in range(bins)]
    return Histogram(stack, layer, [-5 + 5 * n / bins for n in range(bins + 1)], [c / sum(counts) for c in counts])


def curve(rng: random.Random, final: float, points: int, noise: float) -> list[list[float]]:
    return [
        [float(3000 * n // points), final + 6 * math.exp(-8 * n / points) + rng.gauss(0, noise)]
        for n in range(1, points + 1)
    ]


def sample_results(layers: int = 2, count: int = 4, size: int = 16, points: int = 150, seeds: int = 3) -> Results:
    """Nine variants of an encoder-decoder with ``layers`` in each stack and ``count`` heads, and one that failed."""
    rng = random.Random(0)
    variants = []
    for attention, bleu, chrf, parameters, speed, keeps_keys in VARIANTS:
        base = attention == "vanilla"
        variant = Variant(
            attention,
            status="done",
            parameters=parameters,
            scores={
                "BLEU": score(bleu, None if base else 41.2, seeds=seeds),
                "chrF": score(chrf, None if base else 62.1, seeds=seeds),
            },
            training_speed=speed,
            inference_speed=1 + (speed - 1) * 1.3,
            generation_speed=0.9 + speed / 10,
            training_memory=int(1.1e8 + 40 * parameters / speed),
            cache_bytes_per_token=4096 if keeps_keys else 2048,
            training_seconds=300 / speed,
            loss_curve=curve(rng, 1.4 - bleu / 60, points, 0.08),
            validation_curve=curve(rng, 1.6 - bleu / 60, max(1, points // 10), 0.01),
            samples=[
                SAMPLES[0].reference,
                SAMPLES[1].reference.replace("kleinen", "kleine") if bleu < 40 else SAMPLES[1].reference,
                "wir werden ihm nicht helfen , weil es regnet ." if speed > 1 else "es regnet .",
            ],
        )
        for stack in ("encoder", "decoder"):
            for layer in range(layers):
                variant.heads.append(heads(rng, stack, layer, count, size))
                variant.histograms.append(histogram(rng, stack, layer))
                if "+" in attention:
                    first = [rng.uniform(0.1, 0.9) for _ in range(count)]
                    terms = attention.split("+")
                    variant.mixture.append(MixtureShares(stack, layer, terms, [first, [1 - w for w in first]]))
        variants.append(variant)
    variants.append(Variant("linformer(rank=7)", "failed", "linformer cannot be causal, but the decoder must be"))
    return Results(
        task="translation",
        data="builtin:grammar-de",
        baseline="vanilla",
        main_metric="BLEU",
        answer=[
            "The dot product can be left out here at a price: dense loses 1.6 BLEU and trains 1.08 times as fast.",
            "A mixture is better than the dot product alone: random+vanilla gains 1.2 BLEU and costs 9 % of the speed.",
        ],
        rows=variants,
        metrics={
            "BLEU": MetricInfo("sacrebleu's BLEU with 13a tokens, case kept", True),
            "chrF": MetricInfo("character n-grams up to 6, beta 2", True),
        },
        samples=list(SAMPLES),
        published=[
            Published("Table 2, WMT'14 English to German", "BLEU", PAPER, "Theirs are big models and 4.5 M pairs.")
        ],
        facts={"preset": "tiny", "steps": "3,000", "batch": "2,048 tokens", "vocabulary": "1,000", "seeds": str(seeds)},
        command="synthattn compare builtin:grammar-de --task translation --steps 3000",
        versions={"synthattn": "0.3.0", "torch": "2.9.0+cpu", "python": "3.11.2"},
        hardware={"processor": "a processor with 2 cores", "memory": "8 GB"},
        data_hashes={"train": "5e1c" * 16, "validation": "0b77" * 16},
        notes=["Speed is the median of 5 interleaved runs.", "13 of 20,000 training pairs were longer than 64 tokens."],
        started="2025-11-16 10:00",
        seconds=8011.0,
    )
