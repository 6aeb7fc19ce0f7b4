"""What is said of histograms of attention weights, for weights whose truth is known."""

import pytest

from synthattn.compare.records import StudyRecord
from synthattn.compare.results import Histogram
from synthattn.paper import analysis, outcome
from synthattn.paper.evidence import place
from synthattn.training import record

EDGES = [-6.0, -4.0, -2.0, 0.0]


def weights(*shares: float) -> list[Histogram]:
    return [Histogram("decoder", layer, EDGES, list(shares)) for layer in range(2)]


SHARP = weights(0.9, 0.0, 0.1)
"""Nearly all of it next to nothing, and a few large ones."""
EVEN = weights(0.0, 1.0, 0.0)
BLUNT = weights(0.0, 0.99, 0.01)


def keep(results, row: str, after: list[Histogram]) -> None:
    entry = StudyRecord("lm1b", "cpu", "news", row, 0, "synthattn", record.RunRecord("done"), before=EVEN, after=after)
    entry.save(place(results, "lm1b", "cpu", "news", row.lower().replace(" ", "-")), {})


def test_moments_of_a_histogram():
    # Middles are 10^-5, 10^-3 and 10^-1.
    assert analysis.next_to_nothing(SHARP) == pytest.approx(0.9)
    assert analysis.next_to_nothing(EVEN) == 0
    assert analysis.spread(EVEN) == 0
    mean = 0.9 * 1e-5 + 0.1 * 0.1
    variance = 0.9 * (1e-5 - mean) ** 2 + 0.1 * (0.1 - mean) ** 2
    assert analysis.spread(SHARP) == pytest.approx(variance**0.5)


def test_verdicts_are_about_the_transformer_and_not_its_control(tmp_path):
    keep(tmp_path, "Transformer", BLUNT)
    keep(tmp_path, "Transformer (Control)", SHARP)
    keep(tmp_path, "Random", SHARP)
    found = analysis.collect(tmp_path)
    assert [part.name for part in found.parts] == ["lm1b news"]
    assert [row.name for row in found.parts[0].rows] == ["Transformer", "Transformer (Control)", "Random"]
    vary, sparse = found.verdicts
    assert (vary.judgement, sparse.judgement) == ("holds", "does not hold")
    assert "Transformer 0%, Random 90%" in sparse.because


def test_what_nobody_would_see_decides_nothing(tmp_path):
    for row in ("Transformer", "Dense"):
        keep(tmp_path, row, SHARP)
    assert [one.judgement for one in analysis.collect(tmp_path).verdicts] == ["undecided", "undecided"]


def test_nothing_was_looked_at(tmp_path):
    assert analysis.collect(tmp_path) == outcome.Outcome(
        "analysis", analysis.TITLE, [], analysis.collect(tmp_path).notes
    )
