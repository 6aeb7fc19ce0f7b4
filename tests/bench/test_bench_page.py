"""Tables and page of a benchmark: whole, safe, and without what was not measured."""

import dataclasses
import itertools
import re
import xml.etree.ElementTree as ElementTree

import pytest
from sample_record import CONTENDERS, sample_record

from page_reader import Reader, assert_alone, in_a_browser, local_links, shown
from synthattn.bench.page import markdown, page
from synthattn.bench.record import BenchRecord, Case, Measurement
from synthattn.bench.tables import tables
from synthattn.render.numbers import NOTHING, TIMES
from synthattn.render.table import plain

HOSTILE = "</title></style>--><img src=x onerror=\"alert('x')\">&amp;|<svg onload=alert(1)>`"
SVG = "{http://www.w3.org/2000/svg}"


def measured(kind: str, length: int = 33) -> Measurement:
    return Measurement("random", Case(kind, 3, length), 0.002, 0.01, {"vanilla": 1.5})


PARTS = {
    "layer": BenchRecord(measurements=[measured("layer")]),
    "model": BenchRecord(measurements=[measured("model")]),
    "train": BenchRecord(measurements=[measured("train")]),
    "decode": BenchRecord(measurements=[measured("decode")]),
    "growth-length": BenchRecord(measurements=[measured("layer", length) for length in (7, 11, 13)]),
    "growth-batch": BenchRecord(
        measurements=[dataclasses.replace(measured("layer"), case=Case("layer", batch, 7)) for batch in (2, 3, 5)]
    ),
}
TITLES = {
    "layer": "## The attention layer",
    "model": "## A whole encoder, forward",
    "train": "## A whole encoder, training step",
    "decode": "## Generation",
    "growth-length": "## Growth with the length",
    "growth-batch": "## Growth with the batch",
}


def test_one_file_that_asks_for_nothing_else():
    text = page(sample_record())
    assert_alone(text)
    assert local_links(text)
    assert len(text.encode()) < 2_000_000


@pytest.mark.parametrize("part", PARTS)
def test_a_section_is_there_when_its_data_are(part):
    record = PARTS[part]
    assert list(tables(record)) == [part]
    reader = Reader(page(record))
    expected = {part}
    assert reader.sections() == expected
    assert {a["href"] for tag, a in reader.tags if tag == "a"} == {f"#{key}" for key in expected}
    heads = [line for line in markdown(record).splitlines() if line.startswith("## ")]
    assert heads == [TITLES[part]]


def test_everything_and_nothing():
    record = sample_record()
    assert list(tables(record)) == list(PARTS)
    assert Reader(page(record)).sections() == set(PARTS)
    assert [line for line in markdown(record).splitlines() if line.startswith("## ")] == list(TITLES.values())
    assert tables(BenchRecord()) == {}
    assert Reader(page(BenchRecord())).sections() == set()
    assert "##" not in markdown(BenchRecord()).removeprefix("#")


def test_plots_are_drawn_with_their_numbers():
    text = page(sample_record())
    found = re.findall(r"<svg xmlns.*?</svg>", text, flags=re.DOTALL)
    for svg in found:
        ElementTree.fromstring(svg)
    # Layers in two shapes and modes; model; train; one and four beams; two growths of time and memory.
    assert len(found) == 4 + 1 + 1 + 2 + 8
    titles = [each.text or "" for svg in found for each in ElementTree.fromstring(svg).iter(f"{SVG}title")]
    assert any(re.fullmatch(rf"random\n16x512, eval, causal\n\d\.\d\d{TIMES} vanilla", title) for title in titles)
    assert any(re.fullmatch(r"vanilla\nlength 8192: [\d,.]+ ms", title) for title in titles)
    assert "nan" not in "".join(found).lower()


def test_growth_alone_gets_no_table_of_its_own():
    record = sample_record()
    layer = tables(record)["layer"][2]
    assert [table.title for table in layer] == ["16x512, eval", "16x512, train", "4x2048, eval", "4x2048, train"]
    for table in layer:
        assert [plain(row.name) for row in table.rows] == list(CONTENDERS)


def test_texts_stay_texts():
    record = sample_record()
    attacked = BenchRecord(
        command=HOSTILE,
        machine=HOSTILE,
        versions={HOSTILE: HOSTILE},
        started=HOSTILE,
        measurements=[
            dataclasses.replace(
                m,
                contender=m.contender + HOSTILE,
                ratios={name + HOSTILE: value for name, value in m.ratios.items()} | m.ratios,
                rival_megabytes={name + HOSTILE: value for name, value in m.rival_megabytes.items()},
            )
            for m in record.measurements
        ],
        skipped=[HOSTILE],
    )
    plain, reader = Reader(page(record)), Reader(page(attacked))
    assert {tag for tag, _ in reader.tags} <= {tag for tag, _ in plain.tags}
    assert not any(name.startswith("on") for _, attributes in reader.tags for name in attributes)
    assert HOSTILE in reader.text("li")
    assert HOSTILE in reader.text("code")
    written = markdown(attacked)
    rows = [line for line in written.replace("\\|", "").splitlines() if line.startswith("|")]
    for row, after in itertools.pairwise(rows):
        # Within a table, all rows have as many cells.
        if set(after) <= set("|-: "):
            assert row.count("|") == after.count("|")
    outside = "".join(line for line in written.split("```")[::2])
    assert "<img" not in outside


def test_markdown_begins_with_how_it_was_made():
    record = sample_record()
    lines = markdown(record).splitlines()
    about = lines[2]
    assert about.startswith("Written by `synthattn bench`, not by hand: ")
    for text in (record.machine, "2 threads", "torch 2.13.0+cpu", "7 interleaved rounds"):
        assert text in about
    assert "noise between machines" in lines[4]
    assert f"- {record.skipped[0]}" in lines
    assert "Left out" not in markdown(dataclasses.replace(record, skipped=[]))


def test_cells_of_a_layer():
    case = Case("layer", 3, 7, "train")
    ratios = {"straightforward": 12.34, "vanilla": 1.005, "nn.MultiheadAttention": 2.0}
    found = [
        Measurement("dense", case, 1.0, 0.0, ratios, 12.0, {"straightforward": 345.6}, 7.89, 0.811),
        Measurement("dense", dataclasses.replace(case, mask="causal"), 1.0, 0.0, {"vanilla": 3.0}),
        Measurement("linformer", case, 1.0, 0.0, {"vanilla": 0.5}, 9.5),
    ]
    lines = markdown(BenchRecord(measurements=found)).splitlines()
    at = lines.index("### 3x7, train")
    assert lines[at:] == [
        "### 3x7, train",
        "",
        f"full: {TIMES} vanilla / {TIMES} nn.MultiheadAttention / {TIMES} straightforward.  ",
        "MB, full: its own / straightforward.",
        "",
        f"| Attention | full | causal, {TIMES} vanilla | MB, full | GFLOP, full | GEMM share, full |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        "| `dense` | 1.00 / 2.00 / 12.3 | 3.00 | 12.0 / 346 | 7.89 | 0.81 |",
        "| `linformer` | 0.50 / - / - | - | 9.50 / - | - | - |".replace(" -", f" {NOTHING}"),
    ]


def test_cells_of_growth():
    points = [(512, 0.001, 1.0), (1024, 0.002, 4.0), (2048, 0.004, 16.0)]
    found = [
        Measurement("dense", Case("layer", 1, n), seconds, 0.0, {"vanilla": 2.0}, megabytes)
        for n, seconds, megabytes in points
    ]
    lines = markdown(BenchRecord(measurements=found)).splitlines()
    assert "| `dense` | 1.00 (1.00) | 2.00 (2.00) |" in lines
    assert "| Attention | length 512 | length 1024 | length 2048 |" in lines
    assert "| `dense` | 1.00 / 2.00 / 1.00 | 2.00 / 2.00 / 4.00 | 4.00 / 2.00 / 16.0 |" in lines


def test_cells_of_generation():
    found = [
        Measurement("random", Case("decode", 8, 128, beams=beams), 1.0, 0.0, {"vanilla": 1.25}, cache_bytes=12288.0)
        for beams in (1, 4)
    ]
    lines = markdown(BenchRecord(measurements=found)).splitlines()
    assert "| `random` | 1.25 | 1.25 | 12,288 / 12,288 |" in lines


@in_a_browser
def test_a_browser_shows_it(tmp_path):
    file = tmp_path / "page.html"
    file.write_text(page(sample_record()), encoding="utf-8")
    dom = shown(file)
    assert dom.count("<section") == len(PARTS)
    assert dom.count("<figure>") == 16
