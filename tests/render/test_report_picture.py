"""The drawing of quality against cost."""

import math
import xml.etree.ElementTree as ElementTree

import pytest
from report_helpers import sample_results

from synthattn.compare.results import Metric, Results, Score, Variant
from synthattn.render.picture import COSTS, Axis, Point, picture, place_labels, scatter

SVG = "{http://www.w3.org/2000/svg}"


def names(svg: str) -> list[str | None]:
    return [text.text for text in ElementTree.fromstring(svg).iter(f"{SVG}text") if text.get("class") == "name"]


@pytest.mark.parametrize("cost", COSTS)
def test_every_measured_variant_is_there_and_named(cost):
    results = sample_results(layers=1, count=1, size=2)
    svg = scatter(results, COSTS[cost], 400, 300)
    assert names(svg) == [variant.attention for variant in results.variants if variant.status == "done"]


def test_names_lie_on_nothing_and_inside():
    area = (0.0, 0.0, 400.0, 300.0)
    points = [Point(n, "factorized", "", 150 + 9.0 * n, 150 + 7.0 * n, 140 + 7.0 * n, 160 + 7.0 * n) for n in range(5)]
    boxes = place_labels(points, area, [])
    for n, (left, top, right, bottom) in enumerate(boxes):
        assert 0 <= left < right <= 400
        assert 0 <= top < bottom <= 300
        for other in boxes[:n]:
            assert left >= other[2] or right <= other[0] or top >= other[3] or bottom <= other[1]
        for point in points:
            assert not (left < point.x < right and top < point.y < bottom)


def test_nothing_to_draw_is_said():
    bare = Results("t", "d", "vanilla", "m", [], [Variant("vanilla", "failed", "no reason")], {})
    assert "nothing to draw" in picture(bare)
    ElementTree.fromstring(picture(bare))


def test_one_point_without_width_is_drawn():
    variant = Variant("<vanilla>", "done", scores={"m": Score(0.0, 0.0, 0.0, [0.0])}, training_speed=1.0)
    broken = Variant("dense", "done", scores={"m": Score(math.nan, 0.0, 0.0, [0.0])}, training_speed=1.0)
    results = Results("t", "d", "<vanilla>", "m", [], [variant, broken], {"m": Metric("", True)})
    assert names(picture(results)) == ["<vanilla>"]


def test_ticks_are_round_and_an_outlier_makes_the_axis_logarithmic():
    axis = Axis([0.83, 1.31], 0, 480)
    assert [axis.label(tick) for tick in axis.ticks] == ["0.8", "1.0", "1.2"]
    axis = Axis([20.0, 900.0], 0, 100)
    assert [axis.label(tick) for tick in axis.ticks] == ["20", "50", "100", "200", "500", "1,000"]
    assert axis(20.0) < axis(900.0)
