"""The page of a reproduced table: whole, safe, and with the way to every record."""

import dataclasses
import re
import xml.etree.ElementTree as ElementTree
from html import unescape
from typing import Any

import pytest
from sample_outcome import HOSTILE, PLAIN, new_part, new_row, sample_outcome, score

from page_reader import Reader, assert_alone, in_a_browser, shown
from synthattn.compare.results import MetricInfo, Results, Run
from synthattn.paper.outcome import JUDGEMENTS, ClaimVerdict, Outcome
from synthattn.paper.page import KINDS, differences, page
from synthattn.render.charts import Point

ATTACK = "</title></style>--><img src=x onerror=\"alert('x')\">&amp;<svg onload=alert(1)>"
SVG = "{http://www.w3.org/2000/svg}"


def attacked(found: Any) -> Any:
    """Append to every text one that tries to leave its place in the page."""
    if dataclasses.is_dataclass(found) and not isinstance(found, type):
        values = {f.name: getattr(found, f.name) for f in dataclasses.fields(found)}
        return type(found)(**{name: v if name in ("judgement", "kind") else attacked(v) for name, v in values.items()})
    if isinstance(found, str):
        return found + ATTACK
    if isinstance(found, list):
        return [attacked(value) for value in found]
    if isinstance(found, dict):
        kept = ("parameters", "speed")
        return {key if key in kept else attacked(key): attacked(value) for key, value in found.items()}
    return found


def rows(text: str, part: int = 0) -> dict[str, list[str]]:
    """The cells of a part's table as texts, by the name that a row begins with."""
    table = text.translate(PLAIN).split('aria-label="Table of results')[part + 1]
    body = table.split("<tbody>")[1].split("</tbody>")[0]
    found = {}
    for row in re.findall("<tr.*?</tr>", body, flags=re.DOTALL):
        cells = [re.split("</t[hd]>", cell)[0].split(">", 1)[1] for cell in re.split("<t[hd](?= |>)", row)[1:]]
        plain = [unescape(" ".join(re.sub("<wbr>|</?sup>|</?a[^>]*>", "", c).split())) for c in cells]
        texts = [" ".join(re.sub("</?(?:small|span)[^>]*>", " ", cell).split()) for cell in plain]
        found[texts[0]] = texts[1:]
    return found


def test_one_file_that_asks_for_nothing_else():
    text = page(sample_outcome())
    assert_alone(text)
    assert Reader(text).sections() == {"claims", "news-cpu", "topics-tiny", "made"}


def test_size_of_a_large_table():
    assert len(page(sample_outcome(layers=12)).encode()) < 1_000_000


def test_made_twice_it_is_the_same():
    outcome = sample_outcome()
    for part in outcome.parts:
        part.rate_runs = dict(reversed(part.rate_runs.items()))
        for row in part.rows:
            row.scores = dict(reversed(row.scores.items()))
            row.published = dict(reversed(row.published.items()))
    assert page(outcome) == page(sample_outcome())


def test_cells_of_the_tables():
    text = page(sample_outcome())
    assert rows(text) == {
        "Transformer vanilla baseline": [
            "2.10 M", "70 M", "71.3 [70.0, 72.6]", "none", "38.21", "23.77 [23.37, 24.17]", "none", "0.411",
            "1.00x [0.97, 1.02]", "1.00x 3.90 steps/s", "3 of 3",
        ],
        "Random random": [
            "1.97 M", "58 M", "74.9 [73.6, 76.2]", "+3.6 worse [+2.3, +4.9], p < 0.001", "40.60 +2.39",
            "24.97 [24.57, 25.37]", "+1.20 worse [+0.80, +1.60], p < 0.001", "0.548", "1.17x [1.14, 1.19]",
            "1.09x 4.26 steps/s", "3 of 3",
        ],
        # The 2 leads to a footnote.
        f"{HOSTILE} random+vanilla, mix=sum": [
            "2.24 M", "70 M2", "69.8 [68.5, 71.1]", "-1.5 better [-2.8, -0.2], p = 0.024", "40.052 +1.84",
            "23.27 [22.87, 23.67]", "-0.50 better [-0.90, -0.10], p = 0.014", "0.685", "0.91x [0.88, 0.93]",
            "0.97x2 3.79 steps/s", "3 of 3",
        ],
        "Dense dense": [
            "none", "none", "failed: loss was not finite at step 311", "none", "40.883 +2.67", *["none"] * 5,
                "0 of 3",
        ],
    }  # fmt: skip
    topics = rows(text, 1)
    # Here higher is better, and nothing is sure.
    assert topics[f"{HOSTILE} random+vanilla"][1:3] == ["88.60 [87.70, 89.50]", "+0.50 [-0.40, +1.40], p = 0.28"]
    assert topics["Linformer linformer"] == ["none", "missing", "none", "0 of 2"]


def test_footnotes_say_where_numbers_are_from_and_what_speaks_against_them():
    reader = Reader(page(sample_outcome()))
    texts = [text for tag, text in reader.texts if tag == "li"]
    assert "Tay et al., Synthesizer (2020, 2021)." in texts
    care = "To be read with care: the baseline may differ in more than its attention."
    assert f"Tay et al., Synthesizer (2020, 2021). {care}" in texts
    assert "Narang et al. (2021)." in texts
    titles = {a["title"] for tag, a in reader.tags if tag == "a" and "title" in a}
    assert len(titles) == 3
    assert titles <= set(texts)


def test_every_link_leads_somewhere():
    outcome = sample_outcome()
    text = page(outcome)
    reader = Reader(text)
    ids = [attributes["id"] for _, attributes in reader.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [a["href"] or "" for tag, a in reader.tags if tag == "a"]
    assert {link[1:] for link in links if link.startswith("#")} <= set(ids)
    records = {run.record for part in outcome.parts for row in part.rows for run in row.runs}
    records |= {record for part in outcome.parts for record in part.rate_runs.values()}
    assert {link for link in links if not link.startswith("#")} == {f"../{record}" for record in records}
    # From the numbers to the runs, and with each the way to make it again.
    assert '<a href="#news-cpu-random">74.9</a>' in text
    runs = text.replace("<wbr>", "").split('class="box"')[1:]
    commands = [unescape(each) for box in runs for each in re.findall('<span class="name">(synthattn.*?)</span>', box)]
    assert commands == [run.command for part in outcome.parts for row in part.rows for run in row.runs]
    assert 'href="lm1b/records/news/random-1.json"' in page(outcome, root="")


def test_numbers_of_every_seed_and_rate():
    outcome = sample_outcome()
    text = page(outcome)
    for part in outcome.parts:
        for row in part.rows:
            for name, found in row.scores.items():
                assert all(f"{name} {value:.2f}" in text for value in found.by_seed)
        for loss in part.rates.values():
            assert f">{loss}</" in text
    best = '<strong>0.003:</strong> <a href="../lm1b/records/news/rate-0.003.json"><strong>4.307</strong></a>'
    assert best in text


def test_verdicts_come_first_with_words_and_not_colours_alone():
    text = page(sample_outcome())
    reader = Reader(text)
    kinds = ["word good", "word bad", "word open", "word none"]
    found = re.findall('<span class="(word [a-z]+)">([a-z ]+)</span>', text)
    words = ("holds", "does not hold", "undecided", "not run")
    assert set(found) == set(zip(kinds, words, strict=True))
    assert set(KINDS) == set(JUDGEMENTS)
    assert reader.text("p").count(
        "4 claims of the paper's text; here 1 holds, 1 does not hold, 1 is undecided, 1 was not run."
    )
    # Where its numbers do not say what its text says.
    assert [text for tag, text in reader.texts if tag == "span" and "disagree" in text] == [
        "text and numbers disagree"
    ] * 2
    assert "<b>The paper, section 4.5</b></p>" in text
    assert text.index('id="claims"') < text.index('id="news-cpu"')


def test_texts_stay_texts():
    outcome = sample_outcome()
    plain, reader = Reader(page(outcome)), Reader(page(attacked(outcome)))
    assert {tag for tag, _ in reader.tags} == {tag for tag, _ in plain.tags}
    assert not any(name.startswith("on") for _, attributes in reader.tags for name in attributes)
    assert ATTACK in reader.text("span")
    assert HOSTILE in plain.text("th")
    assert HOSTILE in plain.text("figcaption")
    assert "<b>&" not in page(outcome)


@pytest.mark.parametrize("higher", [True, False])
def test_plots_say_which_side_is_better(higher):
    gap = score(3.0, 1.0, 0.5, 1).difference
    assert gap is not None
    part = Results("", "", "base", "metric", [], [], {"metric": MetricInfo("", higher)})
    points = [
        Point("ours", 1, gap.value, "both", "both, ours", gap.low, gap.high),
        Point("published", 0, -1.5, "both", "both, published"),
    ]
    svg = ElementTree.fromstring(differences(part, "metric", points).svg())
    texts = [each.text or "" for each in svg.iter(f"{SVG}text")]
    assert ("← worse, better →" in texts) == higher
    assert ("← better, worse →" in texts) != higher
    tips = [each.text for each in svg.iter(f"{SVG}title")]
    assert tips == ["both, ours", "both, ours", "both, published"], "an interval and two dots"


def test_plots_and_histograms_are_drawn():
    text = page(sample_outcome(layers=3))
    found = re.findall(r"<svg xmlns.*?</svg>", text, flags=re.DOTALL)
    for svg in found:
        ElementTree.fromstring(svg)
    # Two metrics and one; three rows with three layers in each of two stacks.
    assert len(found) == 3 + 3 * 6
    filled = [svg for svg in found if 'fill="#2f86c6" opacity="0.5"' in svg]
    assert len(filled) == 18
    assert all('stroke="#717b87"' in svg for svg in filled), "before training"
    assert "nan" not in "".join(found).lower()


def test_a_row_that_failed_after_its_first_seed_says_so_and_keeps_its_score():
    outcome = sample_outcome()
    row = outcome.parts[0].rows[1]
    row.status, row.reason, row.runs = "failed", "no memory", row.runs[:1]
    found = rows(page(outcome))
    assert found["Random random failed: no memory"][-1] == "1 of 3"
    assert found["Random random failed: no memory"][2] == "74.9 [73.6, 76.2]"


@pytest.mark.parametrize(
    "part",
    [
        new_part("p", "t", "tiny", "none", {}, []),
        new_part(
            "p",
            "t",
            "cpu",
            "none",
            {"m": MetricInfo("", True)},
            [new_row("a", "a", "vanilla"), new_row("b", "b", "dense")],
        ),
        new_part("p", "t", "paper", "a", {}, [new_row("a", "a", "vanilla", status="done", parameters=7, gigaflop=0.5)]),
        new_part(
            "p",
            "t",
            "else",
            "a",
            {"m": MetricInfo("", False)},
            [new_row("a", "a", "vanilla", runs=[Run(1, "r", "c", 0.0)])],
        ),
    ],
    ids=["nothing", "all missing", "no metric", "run without a score"],
)
def test_little_is_enough(part):
    reader = Reader(page(Outcome("table", "title", [part])))
    assert reader.sections() == {"p-" + part.scale}
    assert sum(attributes.get("scope") == "row" for _, attributes in reader.tags) == len(part.rows)


def test_a_part_that_was_only_looked_at_has_no_table():
    outcome = sample_outcome()
    part = outcome.parts[0]
    rows = [
        new_row(row.name, row.key, row.attention, status="done", look=row.look, runs=row.runs[:1]) for row in part.rows
    ]
    text = page(Outcome("analysis", "title", [new_part("p", "t", "cpu", part.baseline, {}, rows)]))
    assert "<table" not in text
    assert text.count('role="img"') == 3 * 4
    assert text.count(".json") == 3


def test_nothing_is_enough():
    assert Reader(page(Outcome("table", "title", []))).sections() == set()
    verdict = ClaimVerdict("claim", "abstract", "part", "cpu", "not run", "nothing was run")
    assert "part, cpu" in Reader(page(Outcome("table", "title", [], verdicts=[verdict]))).text("p")


@in_a_browser
def test_in_a_browser_nothing_is_wider_than_a_phone(tmp_path):
    """The page is asked from a frame around it, as it has no script of its own."""
    (tmp_path / "page.html").write_text(page(sample_outcome()), encoding="utf-8")
    frame = tmp_path / "frame.html"
    frame.write_text(
        '<iframe src="page.html" width="360" height="800" onload="'
        "const d = this.contentDocument.documentElement, r = d.querySelector('.box');"
        "document.body.dataset.widths = d.scrollWidth + ' ' + d.querySelectorAll('svg').length + ' ' + r.clientHeight;"
        '"></iframe>'
    )
    dom = shown(frame, "--allow-file-access-from-files")
    width, drawings, height = map(int, re.findall(r'data-widths="(\d+) (\d+) (\d+)"', dom)[0])
    assert width <= 360
    assert drawings == 3 + 3 * 4
    assert 0 < height < 500
