"""How differences between rows went while they trained."""

import re
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

from sample_outcome import new_part, new_row

from synthattn.compare.results import Results
from synthattn.paper import learning
from synthattn.paper.markdown import table
from synthattn.paper.outcome import Outcome
from synthattn.paper.page import page

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
        assert learning.about(part(losses)) == learning.plot(part(losses)) == ""


def test_lines_end_where_the_difference_is():
    svg: Any = ElementTree.fromstring(learning.plot(part()))
    space = "{http://www.w3.org/2000/svg}"
    lines = {g.findtext(f"{space}text"): g.find(f"{space}path") for g in svg.iter(f"{space}g")}
    assert list(lines) == ["Fast", "Slow & <b>bold</b>"]
    ends = {name: float(line.get("d").split(",")[-1]) for name, line in lines.items()}
    starts = {name: float(re.findall(r",([\d.]+)", line.get("d"))[0]) for name, line in lines.items()}
    zero = float(next(line.get("y1") for line in svg.iter(f"{space}line") if line.get("class") == "base"))
    # Down is better: larger numbers are lower.
    assert starts["Slow & <b>bold</b>"] < zero < ends["Fast"] < ends["Slow & <b>bold</b>"] < starts["Fast"]
    assert ends["Fast"] - zero == round((ends["Slow & <b>bold</b>"] - zero) / 2, 1)


def test_labels_do_not_hide_each_other():
    losses = {"Transformer": (3.0, 3.0, 3.0, 3.0)} | {f"row {n}": (2.0, 2.5, 2.9, 3.0 + n / 1000) for n in range(9)}
    svg: Any = ElementTree.fromstring(learning.plot(part(losses)))
    heights = sorted(float(g.find("{*}text").get("y")) for g in svg.iter("{http://www.w3.org/2000/svg}g"))
    assert len(heights) == 9
    assert all(other - one >= learning.APART - 0.5 for one, other in pairwise(heights))
    assert heights[0] > 0
    assert heights[-1] < float(svg.get("height"))


def test_page_and_table_have_it():
    outcome = Outcome("lm1b", "Table 2", [part()])
    assert learning.plot(part()) in page(outcome)
    assert "halfway and at the end of 40 steps" in table(outcome)
    assert "<b>bold" not in page(outcome)
