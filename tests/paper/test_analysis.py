"""What is said of histograms of attention weights, for weights whose truth is known."""

import re

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


def test_histograms_are_descriptions(tmp_path):
    """However far apart they are: they are of one run, and nothing tests them."""
    keep(tmp_path, "Transformer", BLUNT)
    keep(tmp_path, "Transformer (Control)", SHARP)
    keep(tmp_path, "Random", SHARP)
    found = analysis.collect(tmp_path)
    assert [part.name for part in found.parts] == ["lm1b news"]
    assert [row.name for row in found.parts[0].rows] == ["Transformer", "Random"]
    assert found.verdicts == []
    assert re.search(r"Transformer 0\.\d{3} and 0%; Random 0\.\d{3} and 90%\.$", found.parts[0].note)


def test_nothing_was_looked_at(tmp_path):
    assert analysis.collect(tmp_path) == outcome.Outcome(
        "analysis", analysis.TITLE, [], analysis.collect(tmp_path).notes
    )
