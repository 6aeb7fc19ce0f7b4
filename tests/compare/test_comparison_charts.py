"""The charts of a comparison."""

import math
import xml.etree.ElementTree as ElementTree

import pytest
from report_helpers import VARIANTS, sample_results

from synthattn.compare.page import COSTS, differences, document, page, picture, scatter
from synthattn.compare.results import Metric, Results, Score, Variant
from synthattn.render.charts import Lines
from synthattn.render.document import Figures

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


@pytest.mark.parametrize("cost", COSTS)
def test_every_measured_variant_is_there_and_named(cost):
    results = sample_results(layers=1, count=1, size=2)
    chart = scatter(results, cost)
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


def test_scores_of_zero_have_no_axis_below_zero():
    rows = [
        Variant(name, "done", scores={"m": Score(0.0, 0.0, 0.0, [0.0])}, training_speed=speed)
        for name, speed in (("vanilla", 1.0), ("dense", 2.0))
    ]
    found = texts(picture(Results("t", "d", "vanilla", "m", [], rows, {"m": Metric("", True)})))
    assert "0.0" in found
    assert not any(text.startswith(("-", "\N{MINUS SIGN}")) for text in found)


@pytest.mark.parametrize(("value", "drawn"), [(30.0, True), (2.0, False)])
def test_a_floor_is_a_line_where_it_is_near(value, drawn):
    results = sample_results(layers=1, count=1, size=2)
    results.rows.append(Variant("", "done", name="source copied", scores={"BLEU": Score(value, value, value, [value])}))
    assert ("source copied" in texts(picture(results))) == drawn
    assert f"The floor, source copied, has {value:.1f}" in page(results)


def test_a_floor_of_tokens_is_a_line_among_the_losses():
    floor = Variant("", "done", name="unigram model", scores={"token-perplexity": Score(*[math.exp(2.5)] * 3, [0.0])})
    curve = [[float(step), 4.0 - step / 10] for step in range(1, 11)]
    band = [[step, value - 0.1, value + 0.1] for step, value in curve]
    rows = [Variant("vanilla", "done", validation_curve=curve, validation_band=band), floor]
    results = Results("t", "d", "vanilla", "token-perplexity", [], rows, {"token-perplexity": Metric("", False)})
    (learning,) = [section for section in document(results).sections if section.key == "learning"]
    (figures,) = [block for block in learning.blocks if isinstance(block, Figures)]
    (chart,) = figures.charts
    assert isinstance(chart, Lines)
    assert (chart.rule, chart.rule_name) == (pytest.approx(2.5), "unigram model")
    assert chart.lines[0].band == [tuple(point) for point in band]
    assert "unigram model" in texts(chart.svg())


def test_differences_are_in_a_row_each_with_the_margin_behind():
    chart = differences(sample_results(layers=1, count=1, size=2))
    assert [point.y for point in chart.points] == [name for name, *_ in VARIANTS[1:]]
    assert chart.zone == pytest.approx(0.02 * 41.2)
    assert chart.points[0].x == pytest.approx(33.9 - 41.2)
