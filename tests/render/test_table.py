"""One table in all four forms."""
# Minus signs and dashes are those of print.
# ruff: noqa: RUF001

import io
import json
import re

from rich.console import Console

from page_reader import Reader
from synthattn.render.document import Document, Section
from synthattn.render.html import page
from synthattn.render.markdown import joined_table, safe
from synthattn.render.markdown import table as markdown
from synthattn.render.numbers import digits, interval, times
from synthattn.render.table import Cell, Column, Row, Span, Table, number_cell
from synthattn.render.terminal import show

TABLE = Table(
    "Small",
    "Model",
    [Row((Span("a_b", "code"),), remark="baseline", place=0), Row("x | <b>", "dense", place=1), Row("c")],
    [
        Column("Speed", [number_cell(1.0, times), number_cell(0.5, times), Cell()], "\N{MULTIPLICATION SIGN} base"),
        Column(
            "loss",
            [Cell("2.0", "[1, 3]", key=2.0), Cell("1.0", mark="better", key=1.0), Cell(trouble="failed: no")],
            direction="lower",
            group="test",
        ),
        Column("paper", [Cell("3", note="Doubt."), Cell("4"), Cell()], group="test", note="Where.", kind="paper"),
    ],
)


def on_a_page(table: Table) -> str:
    return page(Document("t", "m", [], [Section("s", "S", [table])], scripted=True))


def test_markdown():
    assert markdown(TABLE) == [
        "| Model | Speed (× base) | test, loss (lower is better) | test, paper<sup>1</sup> |",
        "| --- | ---: | ---: | ---: |",
        "| `a_b` (baseline) | 1.00× | 2.0 [1, 3] | *3*<sup>2</sup> |",
        r"| x \| &lt;b><br>`dense` | 0.50× | 1.0 **better** | *4* |",
        "| c | – | failed: no | – |",
        "",
        "1. Where.",
        "2. Doubt.",
    ]


def test_groups_of_columns_are_joined():
    lines = joined_table(TABLE)
    assert lines[0] == "test: loss / paper."
    assert lines[2] == "| Model | Speed (× base) | test |"
    assert lines[4] == "| `a_b` (baseline) | 1.00× | 2.0 / 3 |"


def test_html():
    text = on_a_page(TABLE)
    reader = Reader(text)
    assert "x | <b>" in reader.text("th")
    assert '<span class="mark better">better</span>' in text
    assert 'class="trouble failed' in text
    keys = [a["data-key"] for tag, a in reader.tags if tag == "td" and "data-key" in a]
    assert keys == ["1.0", "2.0", "0.5", "1.0"]
    notes = {a["href"]: a["title"] for tag, a in reader.tags if tag == "a" and "title" in a}
    assert set(notes.values()) == {"Doubt.", "Where."}
    ids = {a["id"] for _, a in reader.tags if "id" in a}
    assert {(link or "")[1:] for link in notes} <= ids
    assert re.findall('<tr class="base">', text) == ['<tr class="base">']


def test_terminal():
    console = Console(file=io.StringIO(), width=100, color_system=None)
    show(console, [TABLE, TABLE.without("Speed")])
    text = console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
    for found in ("a_b", "1.00×", "2.0 [1, 3]", "better 1.0", "failed", "loss ↓"):
        assert found in text
    console = Console(file=io.StringIO(), width=32, color_system=None)
    show(console, [TABLE, TABLE.without("Speed", details=["loss"])])
    text = console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
    assert "Speed" not in text
    assert "[1, 3]" not in text


def test_json():
    found = json.loads(json.dumps(TABLE.data()))
    assert found[1] == {"Model": "x | <b>", "Speed": 0.5, "test, loss": 1.0, "test, paper": "4"}
    assert found[2]["Speed"] is None


def test_empty_columns_go_and_one_alone_takes_the_name_of_its_group():
    columns = [Column("a", [Cell("1")], group="g"), Column("b", [Cell()], group="g"), Column("c", [Cell()])]
    (kept,) = Table("t", "f", [Row("r")], columns).filled().columns
    assert (kept.head, kept.group) == ("g, a", "")


def test_a_number_that_is_none_is_an_empty_cell():
    assert number_cell(float("nan"), digits) == number_cell(None, digits) == Cell()


def test_a_cell_of_markdown_stays_one_cell():
    assert safe("a|b") == r"a\|b"
    assert safe(r"a\|b") == r"a\\\|b", "the backslash is escaped, and the bar is"
    assert safe("<b> &lt; & a < b\n\x1b") == r"&lt;b> &amp;lt; & a < b \x1b"


def test_a_difference_has_the_digits_of_its_interval():
    assert interval(-180.9, -196.774, -165.718) == "−180.90 [−196.77, −165.72]"
    assert interval(0.0004, -0.0011, 0.0019) == "+0.0004 [−0.0011, +0.0019]"
    assert interval(0.0, 0.0, 0.0) == "0.00 [0.00, 0.00]"
    assert interval(0.0, float("-inf"), float("inf")).startswith("0.00 [")
