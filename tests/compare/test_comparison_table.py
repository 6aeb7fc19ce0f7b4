"""The table as Markdown and CSV."""
# Minus signs and dashes are those of print.
# ruff: noqa: RUF001

import csv
import io
import math
from dataclasses import replace

import pytest
from report_helpers import sample_results

from synthattn.compare.page import markdown
from synthattn.compare.results import Difference, MetricInfo, Published, Results, Score, Variant
from synthattn.compare.table import csv_table, tables
from synthattn.render.numbers import chance, digits, duration, megabytes, quantity, signed, times

SMALL = Results(
    task="language modelling",
    data="my-data",
    baseline="vanilla",
    main_metric="perplexity",
    answer=[],
    rows=[
        Variant(
            "vanilla",
            "done",
            parameters=1_234_567,
            scores={"perplexity": Score(20.0, 19.0, 21.0, [20.0])},
            training_speed=1.0,
            training_memory=1_234_567_890,
            cache_bytes_per_token=4096,
        ),
        Variant(
            "random",
            "done",
            parameters=987_654,
            scores={"perplexity": Score(25.25, 24.0, 26.5, [25.25], Difference(5.25, 4.0, 6.5, 0.002))},
            training_speed=1.3,
            spread={"training_speed": [1.2, 1.4]},
            rounds={"training_speed": 7},
            training_memory=98_765_432,
            cache_bytes_per_token=2048,
        ),
        Variant("dense", "failed", "needs <b>more</b> memory | than there is\nhere"),
        Variant("linformer"),
    ],
    metrics={
        "perplexity": MetricInfo("perplexity: exp of the mean loss", False),
        "bits": MetricInfo("never measured", False),
    },
    published=[
        Published("Table 3", "perplexity", {"vanilla": 38.21, "random": 40.6}, "Of more text."),
        Published("Table 4", "perplexity", {"convolution": 1.0}),
    ],
    notes=["Speed is a median."],
)


@pytest.mark.parametrize(("floor", "mark"), [(21.5, "worse"), (20.5, "")])
def test_of_two_models_below_the_floor_none_is_called_worse(floor: float, mark: str):
    system = Variant("", "done", name="unigram model", scores={"perplexity": Score(floor, floor, floor, [floor])})
    first, _ = tables(replace(SMALL, rows=[*SMALL.rows, system]))
    gap = next(column for column in first.columns if column.head == "Difference").cells[1]
    assert (gap.text, gap.mark) == ("+5.2", mark)


def test_markdown():
    assert (
        markdown(SMALL)
        == """\
| Attention | perplexity (lower is better) | Difference (from vanilla) | Training speed (× baseline) | \
Training memory (MB) | Parameters |
| --- | ---: | ---: | ---: | ---: | ---: |
| `vanilla` (baseline) | 20.0 [19.0, 21.0] | – | 1.00× | 1,235 | 1.23 M |
| `random` | 25.2 [24.0, 26.5] | +5.2 [+4.0, +6.5], p = 0.002 **worse** | 1.30× [1.20, 1.40], 7 rounds | 98.8 | 988 k |
| `dense` | failed: needs &lt;b>more&lt;/b> memory \\| than there is here | – | – | – | – |
| `linformer` | waiting | – | – | – | – |

| Attention | perplexity in the paper (Table 3) | Cache (bytes per token) |
| --- | ---: | ---: |
| `vanilla` (baseline) | *38.21* | 4,096 |
| `random` | *40.60* | 2,048 |
| `dense` | – | – |
| `linformer` | – | – |

- perplexity: exp of the mean loss (lower is better).
- bits: never measured (lower is better).
- In brackets: intervals of 95 %, by bootstrap over the examples. One seed: another may differ by more.
- Differences are from vanilla on the same examples; better and worse stand where p < 0.05.
- perplexity in the paper: Table 3. Of more text.
- Speed is a median.
"""
    )


def test_csv():
    assert (
        csv_table(SMALL)
        == """\
attention,status,reason,parameters,perplexity,perplexity low,perplexity high,perplexity difference,\
perplexity difference low,perplexity difference high,perplexity difference p,perplexity in the paper (Table 3),\
training_speed,training_memory,cache_bytes_per_token
vanilla,done,,1234567,20.0,19.0,21.0,,,,,38.21,1.0,1234567890,4096
random,done,,987654,25.25,24.0,26.5,5.25,4.0,6.5,0.002,40.6,1.3,98765432,2048
dense,failed,"needs <b>more</b> memory | than there is
here",,,,,,,,,,,,
linformer,waiting,,,,,,,,,,,,,
"""
    )


def test_rows_are_as_long_as_the_head():
    results = sample_results(layers=1, count=1, size=2)
    first, more = (found.strip().splitlines() for found in markdown(results).split("\n\n")[:2])
    for table in (first, more):
        assert len({line.count(" | ") for line in table}) == 1
        assert len(table) == 2 + len(results.models)
    rows = list(csv.reader(io.StringIO(csv_table(results))))
    assert len({len(row) for row in rows}) == 1
    assert [row[0] for row in rows[1:]] == [variant.attention for variant in results.models]


def test_readers_see_seven_columns_first_and_the_rest_behind_a_click():
    results = sample_results(layers=1, count=1, size=2)
    results.metrics["rouge1"] = results.metrics["chrF"]
    results.models[0].scores["rouge1"] = results.models[0].scores["chrF"]
    first, more = tables(results)
    assert [first.first, *(column.head for column in first.columns)] == [
        "Attention", "BLEU", "Difference", "Training speed", "Generation speed", "Training memory", "Parameters"
    ]  # fmt: skip
    heads = ["BLEU in the paper", "chrF", "ROUGE-1", "Inference speed", "Cache"]
    assert [column.head for column in more.columns] == heads
    for variant in results.models:
        variant.generation_speed = None  # classifiers do not write
    assert "Inference speed" in [column.head for column in tables(results)[0].columns]


def test_floors_are_rows_whose_scores_are_exact():
    results = sample_results(layers=1, count=1, size=2)
    results.rows.append(Variant("", "done", name="source copied", scores={"BLEU": Score(3.0, 3.0, 3.0, [3.0])}))
    assert "\n| source copied (floor) | 3.00 | – |" in markdown(results)


@pytest.mark.parametrize(
    ("higher", "gap", "word"), [(True, 2.0, "better"), (True, -2.0, "worse"), (False, -2.0, "better")]
)
def test_marks_say_which_way(higher, gap, word):
    score = Score(10.0, 9.0, 11.0, [10.0], Difference(gap, gap - 1, gap + 1, 0.049))
    results = Results(
        "t",
        "d",
        "vanilla",
        "m",
        [],
        [Variant("dense", "done", scores={"m": score})],
        {"m": MetricInfo("", higher)},
    )
    assert f"**{word}**" in markdown(results)
    assert score.difference is not None
    score.difference.p_value = 0.05
    assert "**" not in markdown(results)


def test_before_anything_is_scored():
    text = markdown(Results("t", "d", "vanilla", "", [], [Variant("vanilla", "running"), Variant("dense")], {}))
    assert text.splitlines() == [
        "| Attention | Score |",
        "| --- | ---: |",
        "| `vanilla` (baseline) | running |",
        "| `dense` | waiting |",
        "",
    ]


def test_values_are_kept_for_json():
    first, second, third, _ = tables(SMALL)[0].data()
    assert first == {
        "Attention": "vanilla", "perplexity": 20.0, "Difference": None, "Training speed": 1.0,
        "Training memory": 1_234_567_890, "Parameters": 1_234_567,
    }  # fmt: skip
    assert second["Difference"] == 5.25
    assert third["perplexity"] is None


def test_what_is_not_a_number_breaks_nothing():
    score = Score(math.nan, math.nan, math.nan, [math.nan], Difference(math.nan, math.nan, math.nan, 1.0))
    variant = Variant("dense", "failed", "diverged", scores={"m": score}, training_speed=math.inf)
    text = markdown(Results("t", "d", "vanilla", "m", [], [variant], {}))
    assert "| `dense` | not a number (failed: diverged) |" in text


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (quantity(999), "999"),
        (quantity(999_600), "1.00 M"),
        (quantity(12_345_678), "12.3 M"),
        (quantity(1.5e9), "1.50 B"),
        (digits(999.6), "1,000"),
        (digits(0.012345), "0.0123"),
        (digits(0.0), "0"),
        (digits(-1234.5), "−1,230"),
        (signed(-0.004, 2), "0.00"),
        (signed(0.25, 2), "+0.25"),
        (times(0.5), "0.50×"),
        (times(12.34), "12.3×"),
        (megabytes(5e6), "5.00"),
        (megabytes(12.3456e9), "12,346"),
        (chance(0.0004), "p < 0.001"),
        (duration(59), "59 s"),
        (duration(3599), "1 h 0 min"),
        (duration(8011), "2 h 14 min"),
        (duration(200_000), "2 days 7 h"),
    ],
)
def test_numbers_for_people(found, expected):
    assert found == expected
