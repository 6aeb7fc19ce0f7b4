"""The figures in docs/convert.md are those of the records."""

import json
from typing import Any

from tools import study_conversions, update_conversions

PAGE = update_conversions.PAGE.read_text(encoding="utf-8")


def between(begin: str, end: str) -> str:
    return PAGE.split(begin)[1].split(end)[0].strip()


def test_speeds_are_those_of_the_record():
    record = json.loads(update_conversions.SPEED.read_text(encoding="utf-8"))
    made = between(update_conversions.SPEED_BEGIN, update_conversions.SPEED_END)
    assert made == "\n".join(update_conversions.speed_lines(record))


def test_the_table_of_conversions_has_a_cell_for_each_check():
    checks, families = update_conversions.checks_and_families()
    rows = [
        row.strip("| ").split(" | ") for row in between(update_conversions.BEGIN, update_conversions.END).split("\n")
    ]
    assert rows[0] == ["model", "attention", *checks.CHECKS]
    every = [(f"`{one.model}`", f"`{spec}`") for one in families.values() for spec in checks.SPECS]
    assert [tuple(row[:2]) for row in rows[2:]] == every
    known = {"yes", "right", "no padding", "does not generate"}
    assert {cell for row in rows[2:] for cell in row[2:]} <= known


def test_the_study_is_that_of_the_record():
    record = json.loads(study_conversions.RECORD.read_text()) if study_conversions.RECORD.is_file() else {}
    assert between(study_conversions.BEGIN, study_conversions.END) == "\n".join(study_conversions.lines(record))


def effect(layers: int, kl: float, accuracy: float) -> dict[str, Any]:
    return {"layers": list(range(layers)), "kl": kl, "agreement": 0.5, "accuracy": accuracy}


def test_tables_of_the_study():
    more = [effect(1, 0.1, 0.9), effect(2, 0.3, 0.7)]
    probe = {
        "texts": 20, "names": ["a", "b"], "predictions": 1234, "accuracy": 0.95,
        "single": [effect(1, 0.2, 0.8), effect(1, 0.1, 0.9)], "lowest": more, "first": [effect(1, 0.2, 0.8), more[1]],
        "drawn": [more, [effect(1, 0.2, 0.8), more[1]], more],
    }  # fmt: skip
    outcomes = [
        {"name": name, "tuned": tuned, "effect": effect(count, kl, accuracy)}
        for name, tuned, count, kl, accuracy in [
            ("original", False, 0, -0.0, 0.95), ("converted", False, 1, 0.2, 0.9), ("converted", True, 1, 0.15, 0.92),
            ("original", True, 0, 0.01, 0.94), ("first layers", True, 1, 0.16, 0.91),
            ("random layers", True, 1, 0.25, 0.85), ("random layers", True, 1, 0.14, 0.93),
        ]
    ]  # fmt: skip
    result = {"model": "bert", "batch": 8, "budget_kl": 0.05, "texts": [10, 5, 5], "names": ["a", "b"]}
    result |= {"predictions": 1234, "outcomes": outcomes}
    converted = {str(seed): {**result, "tuning": {"steps": 20, "seed": seed}} for seed in (0, 3)}
    found = study_conversions.lines({"probe": {"bert": probe}, "converted": converted})
    assert found[0].startswith("**BERT, masked tokens.** 10 reactions for the mean, 10 others with 1,234 predictions")
    assert "| 1 | 0.1000 | 0.2000 | 0.1000 to 0.2000 | 90.0% | 80.0% | 80.0% to 90.0% |" in found
    assert "| 2 | 0.3000 | 0.3000 | 0.3000 | 70.0% | 70.0% | 70.0% |" in found
    assert "Alone, layer 1 has the lowest KL, 0.1000, and layer 0 the highest, 0.2000." in found
    assert "| 3 | none | no | 0.0000 | 50.0% | 95.0% |" in found
    assert "| 3 | 1 at random, three draws | 20 steps | 0.1400 to 0.2500 | 50.0% | 85.0% to 93.0% |" in found
    said = "\n".join(found)
    for part in (
        "1 and 1 of 2 layers were replaced.",
        "accuracy is 92.0% and 92.0%, that of the original 95.0% and 95.0%.",
        "Tuning lowered the KL in 2 of 2 seeds, from 0.2000 and 0.2000 to 0.1500 and 0.1500;",
        "the original with the same tuning has 0.0100 and 0.0100.",
        "a lower KL than the first layers (0.1600 and 0.1600) in 2 of 2 seeds,",
        "than all three random choices (0.1400 to 0.2500) in 0 of 2.",
    ):
        assert part in said
