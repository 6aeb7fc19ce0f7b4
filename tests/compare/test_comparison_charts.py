"""The charts of a comparison."""

import math
import xml.etree.ElementTree as ElementTree

import pytest
from report_helpers import sample_results

from synthattn.compare.page import COSTS, document, picture, scatter
from synthattn.compare.results import Metric, Results, Score, Variant
from synthattn.render.charts import Lines
from synthattn.render.document import Figures

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


@pytest.mark.parametrize("cost", COSTS)
def test_every_measured_variant_is_there_and_named(cost):
    results = sample_results(layers=1, count=1, size=2)
    chart = scatter(results, COSTS[cost], 400, 300)
    done = [variant.attention for variant in results.variants if variant.status == "done"]
    assert [point.name for point in chart.points] == done
    assert set(done) <= set(texts(chart.svg()))
    assert "BLEU (higher is better)" in texts(chart.svg())


def test_nothing_to_draw_is_said():
    bare = Results("t", "d", "vanilla", "m", [], [Variant("vanilla", "failed", "no reason")], {})
    assert "nothing to draw" in picture(bare)
    ElementTree.fromstring(picture(bare))


def test_one_point_without_width_is_drawn():
    variant = Variant("<vanilla>", "done", scores={"m": Score(0.0, 0.0, 0.0, [0.0])}, training_speed=1.0)
    broken = Variant("dense", "done", scores={"m": Score(math.nan, 0.0, 0.0, [0.0])}, training_speed=1.0)
    results = Results("t", "d", "<vanilla>", "m", [], [variant, broken], {"m": Metric("", True)})
    assert "<vanilla>" in texts(picture(results))
    assert "dense" not in texts(picture(results))


def test_the_steep_beginning_of_a_loss_leaves_room_for_its_end():
    curve = [[float(step), 9.0 if step < 10 else 2.0 - step / 1000] for step in range(1, 201)]
    results = Results("t", "d", "vanilla", "m", [], [Variant("vanilla", loss_curve=curve)], {})
    (learning,) = [section for section in document(results).sections if section.key == "learning"]
    (figures,) = [block for block in learning.blocks if isinstance(block, Figures)]
    (chart,) = figures.charts
    assert isinstance(chart, Lines)
    assert chart.top is not None
    assert chart.top < 2.0
    assert "8" not in texts(chart.svg())
