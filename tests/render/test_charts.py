"""Charts: whole, with their numbers in words, and the same whenever they are drawn."""

import dataclasses
import re
import xml.etree.ElementTree as ElementTree
import zlib
from base64 import b64decode

import pytest

from synthattn.render.charts import COLOURS, SHAPES, ForestPlot, Key, Line, Lines, Point, Scatter, Shares, place_labels
from synthattn.render.images import heat_map

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "</svg><script>'\"&\\ \x1b\n"
STEPS = [(-3.0, 0.25), (-2.0, 0.75), (-1.0, 0.0)]


def tips(svg: str) -> list[str]:
    return [each.text or "" for each in ElementTree.fromstring(svg).iter(f"{SVG}title")]


def texts(svg: str) -> list[str]:
    return [each.text or "" for each in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def points() -> list[Point]:
    return [Point(f"name{n}", n, 1.0 + n, f"row{n}", f"tip {n}", 0.5 + n, 1.5 + n) for n in range(3)]


CHARTS = {
    "scatter": Scatter("t", "x", "y", [Point(HOSTILE, 0, 1.0, 2.0, HOSTILE, 1.5, 2.5)], HOSTILE),
    "lines": Lines("t", "x", "y", [Line(HOSTILE, 0, [(1.0, 2.0), (2.0, 3.0)], [HOSTILE] * 2)]),
    "growth": Lines("t", "x", "y", [Line("l", 1, [(512.0, 1.0)], ["tip"])], growth=True),
    "rows": ForestPlot("t", "x", [Point("s", 1, 2.0, HOSTILE, HOSTILE)], 1.0, log=True),
    "shares": Shares(HOSTILE, STEPS, STEPS, (-3.0, -1.0), 1.0),
}


@pytest.mark.parametrize("kind", CHARTS)
def test_a_chart_is_the_same_each_time_and_holds_texts_as_texts(kind):
    svg = CHARTS[kind].svg()
    assert svg == CHARTS[kind].svg()
    root = ElementTree.fromstring(svg)
    assert {each.tag.removeprefix(SVG) for each in root.iter()} <= {"svg", "g", "path", "line", "text", "title", "rect"}
    assert "\x1b" not in svg
    assert "url(" not in svg
    assert "nan" not in svg.lower()


def test_every_dot_has_its_words_and_its_place():
    svg = ForestPlot("t", "difference", points(), 0.0).svg()
    assert tips(svg) == ["tip 0", "tip 1", "tip 2"] * 2, "the intervals and the dots"
    assert {"difference", "row0", "row1", "row2"} <= set(texts(svg))
    root = ElementTree.fromstring(svg)
    assert {each.get("class") for each in root.iter() if each.get("class")} == {"k0", "k1", "k2"}


def test_every_row_is_named():
    names = [f"row{n}" for n in range(30)]
    svg = ForestPlot("t", "", [Point("s", 1, 1.0 + n, name, "") for n, name in enumerate(names)], 1.0).svg()
    assert set(names) <= set(texts(svg))


def test_series_of_a_chart_that_stands_alone_are_named_in_it():
    svg = ForestPlot("t", "", [Point(f"series {n}", n, 1.0, "row", "") for n in range(3)], 1.0, keyed=True).svg()
    assert {"series 0", "series 1", "series 2"} <= set(texts(svg))


def test_dots_lie_on_the_side_of_the_line_that_their_numbers_say():
    values = [-1.0, 1.0]
    svg = ForestPlot("t", "", [Point("s", 1, x, f"r{x}", str(x)) for x in values], 0.0).svg()
    places = {}
    for each in ElementTree.fromstring(svg).iter(f"{SVG}path"):
        title = each.find(f"{SVG}title")
        if title is not None:
            places[title.text] = float(re.findall(r"translate\(([\d.]+)", each.get("transform", ""))[0])
    (zero,) = [
        float(re.findall(r"translate\(([\d.]+)", each.get("transform", ""))[0])
        for each in ElementTree.fromstring(svg).iter(f"{SVG}line")
        if each.get("stroke") and not each.get("opacity") and each.get("y2", "0") not in ("0", None)
    ][-1:]
    assert places["-1.0"] < zero < places["1.0"]


def test_an_outlier_makes_an_axis_logarithmic():
    found = [Point(f"n{n}", n, x, 1.0 + n, "") for n, x in enumerate((20.0, 25.0, 900.0))]
    assert {"20", "100"} & set(texts(Scatter("t", "x", "y", found, "").svg()))


def test_nothing_to_draw_is_said():
    svg = Scatter("t", "x", "y", [], "vanilla").svg()
    assert "nothing to draw" in texts(svg)[0]


def test_long_names_are_shortened_but_told():
    name = "dense(window=15)+factorized_random+vanilla"
    svg = ForestPlot("t", "", [Point("full", 1, 2.0, name, name)], 1.0, log=True).svg()
    assert name not in texts(svg)
    assert f"{name[:26]}…" in texts(svg)
    assert tips(svg) == [name]


def test_names_lie_on_nothing_and_inside():
    dots = [(150 + 9.0 * n, 150 + 7.0 * n, 140 + 7.0 * n, 160 + 7.0 * n, "factorized") for n in range(5)]
    boxes = place_labels(dots, 400.0, 300.0)
    for n, (left, top, right, bottom) in enumerate(boxes):
        assert 0 <= left < right <= 400
        assert 0 <= top < bottom <= 300
        for other in boxes[:n]:
            assert left >= other[2] or right <= other[0] or top >= other[3] or bottom <= other[1]
        for x, y, *_ in dots:
            assert not (left < x < right and top < y < bottom)


def test_pairs_of_colour_and_shape_are_unique_for_many_series():
    assert len({(n % len(COLOURS), n % len(SHAPES)) for n in range(60)}) == 60
    assert Key(1, "name").value == ""


def test_a_heat_map_is_an_image_with_a_level_for_each_cell():
    content = b64decode(heat_map(bytes([0, 255, 128, 64]), 2))
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    data = content[content.index(b"IDAT") + 4 :]
    assert zlib.decompressobj().decompress(data) == bytes([0, 0, 31, 0, 16, 8])
    short = b64decode(heat_map(b"", 2))
    assert zlib.decompressobj().decompress(short[short.index(b"IDAT") + 4 :]) == bytes(6)


def test_lines_of_a_file_that_stands_alone_are_named_and_names_do_not_meet():
    lines = [Line(name, place, [(128.0, 5.0 + place / 100), (512.0, 4.0)]) for place, name in enumerate(("a", "b"))]
    lines.append(Line("short", 2, [(128.0, 5.0)]))
    drawn = Lines("t", "x", "y", lines, keyed=True)
    plain = dataclasses.replace(drawn, keyed=False)
    words = re.findall(r"translate\(([\d.]+),([\d.]+)\)[^>]*>(a|b|short)<", drawn.svg())
    assert sorted(word for *_, word in words) == ["a", "b", "short"]
    ends = {word: (float(x), float(y)) for x, y, word in words}
    assert ends["a"][0] == ends["b"][0] > ends["short"][0]
    assert abs(ends["a"][1] - ends["b"][1]) >= 14
    assert not re.search(r">(a|b|short)</text>", plain.svg())
