"""How differences between rows went while they trained."""

import re
from xml.etree import ElementTree

from sample_outcome import new_part, new_row

from synthattn.compare.results import Results
from synthattn.paper import learning
from synthattn.paper.outcome import Outcome
from synthattn.paper.page import page, table

STEPS = (10, 20, 30, 40)
LOSSES = {
    "Transformer": (5.0, 4.0, 3.5, 3.25),
    "Fast": (4.0, 3.5, 3.25, 3.125),
    "Slow & <b>bold</b>": (5.5, 4.5, 3.75, 3.0),
}


def part(losses=LOSSES, steps=STEPS) -> Results:
    rows = [
        new_row(name, name, "vanilla", validation_curve=[[float(s), v] for s, v in zip(steps, values, strict=True)])
        for name, values in losses.items()
    ]
    return new_part("news", "News", "cpu", "Transformer", {}, rows)


def test_differences_are_from_the_baseline_at_the_same_step():
    assert learning.gaps(part()) == {
        "Fast": [(10, -1.0), (20, -0.5), (30, -0.25), (40, -0.125)],
        "Slow & <b>bold</b>": [(10, 0.5), (20, 0.5), (30, 0.25), (40, -0.25)],
    }


def test_only_steps_that_both_were_looked_at():
    found = part()
    found.rows[1].validation_curve = [[5.0, 9.0], [20.0, 3.5], [40.0, 3.125]]
    found.rows[2].validation_curve = [[7.0, 9.0], [40.0, 3.0]]
    assert learning.gaps(found) == {"Fast": [(20, -0.5), (40, -0.125)]}, "one point is no line"


def test_in_words():
    assert learning.about(part()) == (
        "Validation loss of the first seed, less that of Transformer, halfway and at the end of 40 steps (below zero "
        "is better): Fast \N{MINUS SIGN}0.500, then \N{MINUS SIGN}0.125; Slow & <b>bold</b> +0.500, then "
        "\N{MINUS SIGN}0.250. A difference that shrinks may be gone after longer training."
    )


def test_nothing_to_say_without_a_baseline_or_others():
    for losses in ({"Fast": LOSSES["Fast"]}, {"Transformer": LOSSES["Transformer"]}, {}):
        assert learning.about(part(losses)) == ""
        assert learning.chart(part(losses)) is None


def test_lines_end_where_the_difference_is():
    chart = learning.chart(part())
    assert chart is not None
    assert [(line.name, line.points[-1]) for line in chart.lines] == [
        ("Fast", (40, -0.125)),
        ("Slow & <b>bold</b>", (40, -0.25)),
    ]
    assert [(key.name, key.value) for key in chart.legend] == [
        ("Fast", "\N{MINUS SIGN}0.125"),
        ("Slow & <b>bold</b>", "\N{MINUS SIGN}0.250"),
    ]
    assert chart.rule == 0.0
    svg = ElementTree.fromstring(chart.svg())
    every = svg.iter("{http://www.w3.org/2000/svg}path")
    paths = [each.get("d", "") for each in every if each.get("class") and "stroke" in each.attrib]
    starts, ends = ([float(re.findall(r"[,V](-?[\d.]+)", path)[n]) for path in paths] for n in (0, -1))
    # Down is better: larger numbers are lower.
    assert starts[1] < ends[0] < ends[1] < starts[0]


def test_page_and_table_have_it():
    outcome = Outcome("lm1b", "Table 2", [part()])
    assert "validation loss, difference from Transformer" in page(outcome)
    assert "halfway and at the end of 40 steps" in table(outcome)
    assert "<b>bold" not in page(outcome)
