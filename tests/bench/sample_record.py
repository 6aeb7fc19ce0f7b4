"""A benchmark as it could have been, for tests of bars, tables and page, and to look at. Numbers are made up."""

import random

from synthattn.bench.record import BenchRecord, Case, Measurement

# Speed of the layer beside vanilla at length 512, eval and train; how its time and memory grow with length.
CONTENDERS = {
    "vanilla": (1.0, 1.0, 1.62, 1.0),
    "random": (2.4, 2.3, 1.41, 1.0),
    "fixed_random": (2.6, 2.7, 1.40, 1.0),
    "factorized_random": (2.4, 2.3, 1.43, 1.0),
    "dense": (1.3, 1.1, 1.56, 1.08),
    "factorized_dense": (1.1, 1.0, 1.58, 1.1),
    "random+dense": (1.0, 0.95, 1.6, 1.1),
    "random+vanilla": (1.02, 0.95, 1.63, 1.2),
    "dense+vanilla": (0.72, 0.7, 1.7, 1.25),
    "factorized_random+vanilla": (1.0, 0.93, 1.63, 1.2),
    "relative+vanilla": (0.98, 0.9, 1.64, 1.2),
    "dense(window=15)": (2.1, 1.9, 1.05, 1.0),
    "lightconv": (1.9, 1.7, 1.02, 1.0),
    "dynamicconv": (1.2, 0.9, 1.03, 1.0),
    "linformer": (1.6, 1.5, 1.04, 1.0),
    "nn.MultiheadAttention": (0.75, 0.8, 1.7, 1.6),
    "x-transformers": (0.7, 0.75, 1.75, 1.9),
}
MODELS = [
    "vanilla", "random", "fixed_random", "factorized_random", "dense", "factorized_dense", "random+dense",
    "random+vanilla", "dense+vanilla", "dynamicconv",
]  # fmt: skip
LENGTHS = [128, 256, 512, 1024, 2048, 4096, 8192]
BATCHES = [1, 2, 4, 8, 16, 32]


def sample_record(seed: int = 7) -> BenchRecord:
    """Everything that a record can have."""
    chance = random.Random(seed)
    shapes = [(16, 512), (4, 2048)]
    masked = [(shape, mask) for shape in shapes for mask in ("full", "causal", "padded")]
    growing = [((1, length), "full") for length in LENGTHS] + [((batch, 512), "full") for batch in BATCHES]
    cases = dict.fromkeys(
        Case("layer", *shape, mode, mask) for shape, mask in masked + growing for mode in ("eval", "train")
    )
    found = [_layer(name, case, chance) for case in cases for name in CONTENDERS]
    found += [
        _model(name, Case(k, 8, 512, m), chance) for k, m in (("model", "eval"), ("train", "train")) for name in MODELS
    ]
    found += [_decode(name, Case("decode", 8, 128, beams=beams), chance) for beams in (1, 4) for name in MODELS[:-1]]
    return BenchRecord(
        command="synthattn bench --lengths 128,256,512,1024,2048,4096,8192 --peers --report page.html",
        rounds=7,
        machine="Intel(R) Xeon(R) Processor",
        threads=2,
        versions={"python": "3.11.2", "synthattn": "0.5.0", "torch": "2.13.0+cpu", "transformers": "5.22.0"},
        started="2026-08-11T10:12:13+00:00",
        seconds=5_123.0,
        measurements=found,
        skipped=["linformer, 16x512, eval, causal: linformer cannot be causal"],
    )


def _layer(name: str, case: Case, chance: random.Random) -> Measurement:
    evaluated, trained, growth, more = CONTENDERS[name]
    noise = chance.uniform(0.95, 1.05)
    base = 0.004 * case.batch * ((case.length / 512) ** 1.62 + 0.02) * (1 if case.mode == "eval" else 3)
    faster = (evaluated if case.mode == "eval" else trained) * (case.length / 512) ** (1.62 - growth) * noise
    megabytes = 4.5 * case.batch * (case.length / 512) ** more * (1 if case.mode == "eval" else 1.8)
    full = case.mask == "full"
    ours = name not in ("nn.MultiheadAttention", "x-transformers", "linformer", "lightconv", "dynamicconv")
    ratios = {"vanilla": faster, "nn.MultiheadAttention": faster * (1.35 if full else 2.4)}
    ratios |= {"straightforward": 1.2 + faster * chance.uniform(0.3, 0.7)} if ours else {}
    return Measurement(
        name,
        case,
        base / faster,
        chance.uniform(0.01, 0.12),
        {rival: value for rival, value in ratios.items() if rival != name},
        megabytes if full else None,
        {"straightforward": 3.6 * megabytes} if full and ours else {},
        0.55 * case.batch * (case.length / 512) ** 1.4 if full else None,
        chance.uniform(0.7, 0.95) if full else None,
        chance.uniform(1e-7, 9e-7),
    )


def _model(name: str, case: Case, chance: random.Random) -> Measurement:
    faster = 1 + (CONTENDERS[name][0] - 1) * 0.3
    ratios = {"vanilla": faster, "Hugging Face T5": 1.3 * faster, "dynamicconv": 1.4 * faster}
    ratios = {rival: value * chance.uniform(0.95, 1.05) for rival, value in ratios.items() if rival != name}
    return Measurement(
        name, case, 0.9 / faster, 0.03, ratios, 812.0 / faster, {}, 345.6, chance.uniform(0.5, 0.8), 2e-7
    )


def _decode(name: str, case: Case, chance: random.Random) -> Measurement:
    keys = "vanilla" in name
    faster = chance.uniform(0.85, 1.0) if keys else chance.uniform(1.15, 1.5)
    ratios = {"vanilla": faster, "Hugging Face T5": 1.4 * faster}
    ratios = {rival: value for rival, value in ratios.items() if rival != name}
    return Measurement(name, case, 2.0 / faster, 0.04, ratios, error=0.0, cache_bytes=24_576.0 if keys else 12_288.0)
