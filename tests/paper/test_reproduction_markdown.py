"""Reproduced tables as Markdown and in a terminal: whole, of equal columns, and nothing typed by hand."""

import dataclasses
import io
import itertools
import re

import pytest
from rich.console import Console
from sample_outcome import HOSTILE, PLAIN, VERDICTS, new_part, new_row, sample_outcome

from page_reader import Reader
from synthattn.paper import table1
from synthattn.paper.outcome import Outcome
from synthattn.paper.overview import REASONS, changes, overview, picture
from synthattn.paper.page import page, table
from synthattn.paper.table1 import SynthesizedRow
from synthattn.paper.terminal import show, show_table1
from synthattn.paper.words import about_rates, about_scale, counted
from synthattn.saved_file import restore


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.replace("\\|", "").strip("|").split("|")]


def grids(text: str) -> list[list[list[str]]]:
    """All tables, as rows of cells."""
    groups = itertools.groupby(text.splitlines(), lambda line: line.startswith("|"))
    return [[cells(line) for line in lines] for is_table, lines in groups if is_table]


@pytest.mark.parametrize("text", [table(sample_outcome()), overview([sample_outcome(), sample_outcome()])])
def test_rows_of_a_table_have_as_many_cells(text):
    found = grids(text)
    assert found
    for grid in found:
        assert len({len(row) for row in grid}) == 1
        assert all(set(cell) <= set("-:") for cell in grid[1])


def test_bars_and_tags_in_texts_do_not_end_cells():
    outcome = sample_outcome()
    outcome.parts[0].rows[1].name = "a | b <script>"
    outcome.verdicts = [dataclasses.replace(VERDICTS[0], claim="c | d <img src=x>")]
    text = table(outcome) + overview([outcome])
    assert len({len(row) for row in grids(text)[1]}) == 1
    assert "<script" not in text
    assert "<img" not in text
    assert "<b>" not in text


def test_verdicts_first_then_a_table_for_each_part():
    text = table(sample_outcome()).translate(PLAIN)
    verdicts, news, topics = grids(text)
    assert [row[0] for row in verdicts[2:]] == [f"**{verdict.judgement}**" for verdict in VERDICTS]
    assert [row[2].endswith("**(text and numbers disagree)**") for row in verdicts[2:]] == [True, True, False, False]
    assert news[3] == [
        "Random<br>`random`", "1.97 M", "*58 M*", "74.9 [73.6, 76.2]", "+3.6 [+2.3, +4.9], p < 0.001 **worse**",
        "*40.60 (+2.39)*", "24.97 [24.57, 25.37]", "+1.20 [+0.80, +1.60], p < 0.001 **worse**", "0.548",
        "1.17x [1.14, 1.19]", "*1.09x (4.26 steps/s)*",
        "3 of 3",
    ]  # fmt: skip
    assert "failed: loss was not finite at step 311" in news[5]
    assert topics[5] == ["Linformer<br>`linformer`", "none", "missing", "none", "0 of 2"]
    assert news[4][5] == "*40.05 (+1.84)*<sup>2</sup>"
    assert "\n2. Tay et al., Synthesizer (2020, 2021). To be read with care: the baseline may differ" in text


def test_all_records_and_commands_are_there():
    outcome = sample_outcome()
    text = table(outcome)
    for part in outcome.parts:
        for record in part.rate_runs.values():
            assert f"](../{record})" in text
        for run in (run for row in part.rows for run in row.runs):
            assert f"[seed {run.seed}](../{run.record})" in text
            assert f"`{run.command}`" in text
        for name, value in part.facts.items():
            assert f"- {name}: {value}" in text


def test_made_from_what_was_written_it_is_the_same():
    outcome = sample_outcome()
    again = restore(Outcome, dataclasses.asdict(outcome))
    assert table(again) == table(outcome)
    assert overview([again]) == overview([outcome])


def test_the_overview_counts_verdicts_and_leads_everywhere():
    other = Outcome("heads", "How many heads", [], verdicts=[VERDICTS[0], VERDICTS[0], VERDICTS[3]])
    text = overview([sample_outcome(), other], with_table1=True, more=[("Why", "why.md")]).translate(PLAIN)
    sections = re.split("^## ", text, flags=re.MULTILINE)
    assert [section.splitlines()[0] for section in sections[1:]] == ["What holds", "Claims by table", "More"]
    (counts,) = grids(text)
    assert counts[0] == ["Table", "holds", "does not hold", "undecided", "not run", "More"]
    assert [row[:5] for row in counts[2:4]] == [
        ["Table 2: language modelling", "1", "1", "1", "1"],
        ["How many heads", "none", "2", "none", "1"],
    ]
    assert counts[2][5] == "[page](lm1b/page.html), [table](lm1b/table.md), [data](lm1b/results.json)"
    assert counts[4][5] == "[page](table1/page.html), [table](table1/table.md)"
    assert "Of 7 claims, 4 are decided: 1 hold, 3 fail." in text
    assert "- [Why](why.md)" in text
    assert len(text.split()) < 600
    assert not any(verdict.claim in text for verdict in VERDICTS), "claims are on the pages of their tables"


def test_an_overview_of_nothing():
    text = overview([])
    assert text.startswith("# What of the paper holds")
    assert "##" not in text


def test_the_forest_plot_is_grey_below_the_floor_and_hollow_for_one_run():
    outcome = sample_outcome()
    judged = zip(outcome.verdicts[:3], ("holds", "below the floor", "one run"), strict=True)
    outcome.verdicts = [
        dataclasses.replace(one, judgement=word, label=word, effect=[1.0, 0.5, 1.5]) for one, word in judged
    ]
    drawn = picture([outcome])
    marks = re.findall(r'<path [^>]*class="k(\d)"[^>]*><title>([a-z ]+):', drawn)
    assert {(place, word) for place, word in marks} == {("3", "holds"), ("0", "below the floor"), ("1", "one run")}
    hollow = [each for each in re.findall(r"<path [^>]*><title>one run", drawn) if "stroke=" in each and "Z" in each]
    assert hollow
    assert not any(re.search(r' fill="#', each) for each in hollow)
    assert picture([Outcome("lm1b", "t", [], verdicts=VERDICTS[:1])]) == ""


def test_the_verdicts_that_changed_are_listed_with_the_reason():
    outcome = sample_outcome()
    earlier = {
        "lm1b": [["as it was called", "holds"], ["b", "holds"], ["c", "undecided"], ["d", "holds"], ["e", "holds"]]
    }
    (rows,) = grids(changes([outcome], earlier).translate(PLAIN))
    assert [row[1:3] for row in rows[2:]] == [
        ["holds", "does not hold"],
        ["holds", "not run"],
        ["holds", "a description"],
    ]
    assert rows[2][3] == REASONS["does not hold"]


def test_what_a_scale_means_is_counted_and_not_typed():
    part = sample_outcome().parts[0]
    assert "models of 2.0 to 2.2 million parameters, trained for 12 min to 13 min each" in about_scale("cpu", [part])
    assert "the paper's have 58 to 70 million" in about_scale("cpu", [part])
    small = new_part("p", "t", "cpu", "a", {}, [new_row("a", "a", "vanilla", parameters=7_300_000)])
    assert about_scale("cpu", [small]).startswith(
        "Small real data and models of 7.3 million parameters, on a processor"
    )
    assert about_scale("paper", []) == "The paper's own sizes, steps and data, as far as they are known."
    assert "nothing about which model is better" in about_scale("tiny", [])


def test_counting_of_verdicts():
    assert counted(VERDICTS[:1]) == "1 claim of the paper's text; here 1 does not hold."
    twice = counted([*VERDICTS, *VERDICTS])
    assert twice == "8 claims of the paper's text; here 2 hold, 2 do not hold, 2 are undecided, 2 were not run."
    other = [dataclasses.replace(VERDICTS[1], kind="table"), dataclasses.replace(VERDICTS[3], kind="elsewhere")]
    assert counted([*VERDICTS[:3], *other]) == (
        "5 claims, 3 of the paper's text, 1 read from its tables, 1 of another paper; here 2 hold, 1 does not hold, "
        "1 is undecided, 1 was not run."
    )
    single = dataclasses.replace(VERDICTS[0], judgement="one run")
    assert counted([single, single]).endswith("here 2 rest on one run and are not counted.")


def test_a_table_cannot_contradict_itself():
    outcome = sample_outcome()
    assert table(outcome).count("text and numbers disagree") == 2
    assert "contradict its text in 2 claims" in changes([outcome], {})
    outcome.verdicts = [dataclasses.replace(one, kind="table") for one in outcome.verdicts]
    for text in (table(outcome), page(outcome)):
        assert "numbers disagree" not in text
        assert "numbers agree" not in text
    assert "contradict" not in changes([outcome], {})


def test_models_that_changed_sides_are_named():
    """Random + Vanilla is better here, and worse in the paper; the others are worse in both."""
    outcome = sample_outcome()
    (line,) = [line for line in table(outcome).splitlines() if line.startswith("- ") and "; in the paper" in line]
    assert line.translate(PLAIN) == (
        '- &lt;b>&": word-perplexity -1.50 [-2.80, -0.20]; in the paper +1.84 (perplexity, LM1B).'
    )
    score = outcome.parts[0].rows[2].scores["word-perplexity"]
    assert score.difference is not None
    score.difference.high = 0.1
    assert "On the other side of the baseline" not in table(outcome)


@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_terminal_shows_what_it_has_room_for(width):
    console = Console(file=io.StringIO(), width=width, color_system=None)
    outcome = sample_outcome()
    show(outcome, console)
    text = console.file.getvalue().translate(PLAIN)  # pyright: ignore[reportAttributeAccessIssue]
    assert max(map(len, text.splitlines())) <= width
    for part in outcome.parts:
        assert all(row.name in text for row in part.rows)
    for found in ("74.9", "worse +3.6", "better -1.5", "40.60", "Dense: failed: loss was not finite at step 311"):
        assert found in text
    for verdict in VERDICTS:
        assert verdict.judgement in text
    assert HOSTILE in text
    # The interval of the main metric, and that of its difference where all of it fits.
    assert ("[73.6, 76.2]" in text) == (width > 80)
    assert ("p < 0.001 " in text.split("Topics")[0]) == (width == 200)


def test_table_1_everywhere():
    rows = [
        SynthesizedRow("Dense", "dense", "the token itself", "local", False, 395_776, "d² + d N", 393_216),
        SynthesizedRow("<b> + Dot product", "random+vanilla", "all tokens", "local", True, 1_048_592, "", None),
    ]
    (grid,) = grids(table1.markdown(rows).translate(PLAIN))
    assert grid[2:] == [
        ["Dense<br>`dense`", "the token itself", "no", "no", "395,776", "d² + d N", "393,216"],
        ["&lt;b> + Dot product<br>`random+vanilla`", "all tokens", "no", "yes", "1,048,592", "none", "none"],
    ]
    reader = Reader(table1.page(rows))
    cells = [text for tag, text in reader.texts if tag == "td"]
    assert cells[:6] == grid[2][1:]
    assert "<b> + Dot product" in reader.text("th")
    console = Console(file=io.StringIO(), width=80, color_system=None)
    show_table1(rows, console)
    text = console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
    assert max(map(len, text.splitlines())) <= 80
    assert "1,048,592" in text


@pytest.mark.parametrize(
    ("losses", "words"),
    [
        ({"0.001": 3.0, "0.003": 2.0, "0.01": 2.5}, "Learning rate: 0.003, for all rows"),
        ({"0.001": 3.0, "0.003": 2.0, "0.01": 1.5}, "Learning rate: 0.01, the highest that was tried, for all rows"),
        ({"0.001": 1.0, "0.003": 2.0, "0.01": 2.5}, "Learning rate: 0.001, the lowest that was tried, for all rows"),
        ({"0.001": 1.0}, "Learning rate: 0.001, for all rows"),
    ],
)
def test_a_rate_at_the_edge_of_those_tried_is_said_to_be(losses, words):
    part = dataclasses.replace(sample_outcome().parts[0], rates=losses)
    assert about_rates(part)[0].startswith(words)
