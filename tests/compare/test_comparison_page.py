"""The page of a comparison: whole, safe, not too large, with all that was found; its charts; and it in a browser."""

import dataclasses
import math
import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
from report_helpers import VARIANTS, sample_results

from page_reader import Reader, assert_alone, in_a_browser, local_links, shown
from synthattn.compare.page import COSTS, compared, differences, document, markdown, page, picture, scatter, thinned
from synthattn.compare.results import Difference, MetricInfo, Published, Results, Sample, Score, Variant, load
from synthattn.render.charts import Lines
from synthattn.render.document import Figures

HOSTILE = "</script></style>--><img src=x onerror=\"alert('x')\">&amp;<svg onload=alert(1)>"
CONTROLS = "[/x] \x1b[2J\x07\x9b31m\u202eback\u2028\ud800 <b>&amp;\"'|\\\\|"
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
SVG = "{http://www.w3.org/2000/svg}"
BARE = [
    Results("t", "d", "vanilla", "m", [], [], {}),
    Results("t", "d", "vanilla", "m", [], [Variant("vanilla", "failed", "no memory"), Variant("dense", "running")], {}),
    Results("t", "d", "none of them", "m", [], [Variant("dense", "done", scores={"n": Score(1.0, 1.0, 1.0, [])})], {}),
    Results("t", "d", "vanilla", "m", [], [Variant("vanilla")], {}, samples=[Sample("", "")], notes=["note"]),
    Results("t", "d", "v", "m", [], [Variant("v")], {"m": MetricInfo("", False)}, published=[Published("T", "m", {})]),
    Results("t", "d", "vanilla", "m", [], [Variant("vanilla", "running", loss_curve=[[1.0, 5.0]])], {}),
    Results("t", "d", "v", "m", [], [Variant("v", "running", validation_curve=[[0.0, -1.0], [0.0, -1.0]])], {}),
]
"""Comparisons of which little is known."""


def small() -> Results:
    return sample_results(layers=1, count=1, size=2)


def bare(*variants: Variant, **fields: Any) -> Results:
    return Results("t", "d", "vanilla", "m", [], list(variants), {}, **fields)


def changed(found: Any, add: str) -> Any:
    """Append a text to every text of some results; maps stay as they are."""
    if dataclasses.is_dataclass(found) and not isinstance(found, type):
        kept = {"maps", "status", "stack"}
        values = {f.name: getattr(found, f.name) for f in dataclasses.fields(found)}
        return type(found)(**{name: value if name in kept else changed(value, add) for name, value in values.items()})
    if isinstance(found, str):
        return found + add
    if isinstance(found, list):
        return [changed(value, add) for value in found]
    if isinstance(found, dict):
        return {changed(key, add): changed(value, add) for key, value in found.items()}
    return found


# The file ---------------------------------------------------------------------------------------------------------


def test_one_file_that_asks_for_nothing_else():
    text = page(sample_results())
    assert_alone(text, scripts=True)
    assert local_links(text)


def test_says_what_was_found_without_javascript():
    reader = Reader(page(sample_results()))
    table = page(sample_results()).split('aria-label="translation on')[1].split("</table>")[0]
    assert table.count('scope="row"') == 10
    assert "The dot product can be left out here" in reader.text("h1")
    assert "A mixture is better than the dot product alone" in reader.text("p")
    assert "failed: linformer cannot be causal, but the decoder must be" in reader.text("td")
    assert reader.text("code") == "synthattn compare builtin:grammar-de --task translation --steps 3000"
    targets = {attributes["id"] for tag, attributes in reader.tags if tag == "section"}
    assert {a["href"] for tag, a in reader.tags if tag == "a"} == {f"#{target}" for target in targets}
    assert targets == {"table", "costs", "learning", "attention", "samples", "made"}


def test_texts_of_users_stay_texts():
    plain, attacked = (Reader(page(results)) for results in (sample_results(), changed(sample_results(), HOSTILE)))
    assert {tag for tag, _ in attacked.tags} == {tag for tag, _ in plain.tags}
    assert not any(name.startswith("on") for _, attributes in attacked.tags for name in attributes)
    assert HOSTILE in attacked.text("span")
    attack = changed(small(), CONTROLS)
    for text in (page(attack), picture(attack), markdown(attack)):
        assert not CONTROL.search(text)
        assert "<b>" not in text
        text.encode()


def test_size_of_a_large_comparison():
    # Six and six layers of twelve heads in each of nine variants.
    text = page(sample_results(layers=6, count=12, size=24, points=3000))
    assert len(text.encode()) < 2_000_000


@pytest.mark.parametrize("missing", [f.name for f in dataclasses.fields(Variant) if f.name != "attention"])
def test_every_field_of_a_variant_may_be_missing(missing):
    results = sample_results(layers=1, count=1, size=2, points=3)
    results.rows = [*results.models[:2], results.models[-1]]  # the last one has failed
    empty = getattr(Variant("vanilla"), missing)
    for variant in results.models:
        setattr(variant, missing, empty)
    text = page(results)
    Reader(text)  # which asserts that all tags are closed
    table = text.split("<table", 1)[1].split("</table>", 1)[0]
    assert all(variant.attention in table for variant in results.models)


@pytest.mark.parametrize("results", BARE)
def test_little_is_enough(results):
    reader = Reader(page(results))
    tables = sum(tag == "thead" for tag, _ in reader.tags)
    assert sum(tag == "tr" for tag, _ in reader.tags) == tables * (1 + len(results.models))
    assert "nan" not in reader.text("td").lower()


@pytest.mark.parametrize("results", [sample_results(layers=1, count=2, size=3), BARE[0]], ids=["full", "bare"])
def test_what_was_found_survives_being_written_and_read(results, tmp_path):
    path = tmp_path / "results.json"
    results.save(path)
    assert load(path) == results
    assert [file.name for file in tmp_path.iterdir()] == ["results.json"]


# Samples and maps -------------------------------------------------------------------------------------------------


def test_samples_show_what_differs():
    answers = {"vanilla": "a b c d", "dense": "a x c d", "random": "a x c d", "fixed_random": "y z", "relative": ""}
    variants = [*(Variant(name, samples=[text]) for name, text in answers.items()), Variant("interrupted", samples=[])]
    text = page(bare(*variants, samples=[Sample("source", "a b c d")]))
    answered = text.split('<dl class="answers">')[1].split("</dl>")[0]
    found = re.findall("<dt>(.*?)</dt><dd[^>]*>(.*?)</dd>", answered, flags=re.DOTALL)
    plain = [(re.sub("</?span[^>]*>", "", name).strip(), " ".join(said.split())) for name, said in found]
    assert plain == [
        ("reference", "<strong>a b c d</strong>"),
        ("vanilla", 'a b c d <span class="soft">(as the reference)</span>'),
        ("dense, random", "a <del>b</del> <ins>x</ins> c d"),
        ("fixed_random", "y z"),
        ("relative", '<span class="soft">(nothing)</span>'),
    ]


def test_words_are_compared_unless_most_of_them_differ():
    assert compared("y z", "a b c d") == "y z"


def test_long_sources_are_shortened_where_they_are_a_heading():
    reader = Reader(page(bare(Variant("vanilla", samples=["x"]), samples=[Sample("word " * 99, "x")])))
    assert len(reader.text("summary")) <= 160
    assert "word " * 99 in reader.text("dd")


def test_maps_of_all_heads_and_their_weights_are_there():
    reader = Reader(page(sample_results(layers=2, count=3, size=5)))
    assert sum(tag == "img" for tag, _ in reader.tags) == 9 * 2 * 2 * 3
    tips = [a["title"] or "" for tag, a in reader.tags if tag == "img"]
    assert tips[0].startswith("encoder 1, head 1, 10 positions, largest weight 0.")
    shares = [a["style"] or "" for tag, a in reader.tags if tag == "td" and "style" in a]
    # Entropy of all heads; of three mixtures two terms each.
    assert len(shares) == 9 * 2 * 2 * 3 + 3 * 2 * 2 * 2 * 3
    assert all(0 <= float(share.removeprefix("--share:")) <= 1 for share in shares)


# Charts -----------------------------------------------------------------------------------------------------------


def texts(svg: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def curves(results: Results) -> Lines:
    (learning,) = [section for section in document(results).sections if section.key == "learning"]
    (figures,) = [block for block in learning.blocks if isinstance(block, Figures)]
    (chart,) = figures.charts
    assert isinstance(chart, Lines)
    return chart


@pytest.mark.parametrize("cost", COSTS)
def test_every_measured_variant_is_there_and_named(cost):
    results = small()
    chart = scatter(results, cost)
    done = [variant.attention for variant in results.models if variant.status == "done"]
    assert [point.name for point in chart.points] == done
    assert {*done, "BLEU (higher is better)"} <= set(texts(chart.svg()))


def test_nothing_to_draw_is_said():
    assert "nothing to draw" in texts(picture(bare(Variant("vanilla", "failed", "no reason"))))[0]


def test_one_point_without_width_is_drawn():
    variant = Variant("<vanilla>", "done", scores={"m": Score(0.0, 0.0, 0.0, [0.0])}, training_speed=1.0)
    broken = Variant("dense", "done", scores={"m": Score(math.nan, 0.0, 0.0, [0.0])}, training_speed=1.0)
    results = Results("t", "d", "<vanilla>", "m", [], [variant, broken], {"m": MetricInfo("", True)})
    assert "<vanilla>" in texts(picture(results))
    assert "dense" not in texts(picture(results))


def test_scores_of_zero_have_no_axis_below_zero():
    rows = [
        Variant(name, "done", scores={"m": Score(0.0, 0.0, 0.0, [0.0])}, training_speed=speed)
        for name, speed in (("vanilla", 1.0), ("dense", 2.0))
    ]
    found = texts(picture(Results("t", "d", "vanilla", "m", [], rows, {"m": MetricInfo("", True)})))
    assert "0.0" in found
    assert not any(text.startswith(("-", "\N{MINUS SIGN}")) for text in found)


@pytest.mark.parametrize(("value", "drawn"), [(30.0, True), (2.0, False)])
def test_a_floor_is_a_line_where_it_is_near(value, drawn):
    results = small()
    results.rows.append(Variant("", "done", name="source copied", scores={"BLEU": Score(value, value, value, [value])}))
    assert ("source copied" in texts(picture(results))) == drawn
    assert f"is the floor: source copied, {value:.1f}" in page(results)


def test_a_floor_above_models_that_score_zero_is_a_line_and_no_differences_are_drawn():
    zero = Difference(0.0, 0.0, 0.0, 1.0)
    rows = [
        Variant("vanilla", "done", scores={"m": Score(0.0, 0.0, 0.0, [0.0])}, training_speed=1.0),
        Variant("dense", "done", scores={"m": Score(0.0, 0.0, 0.0, [0.0], zero)}, training_speed=2.0),
        Variant("", "done", name="source copied", scores={"m": Score(0.4, 0.4, 0.4, [0.4])}),
    ]
    results = Results("t", "d", "vanilla", "m", [], rows, {"m": MetricInfo("", True)})
    assert "source copied" in texts(picture(results))
    assert "difference from vanilla" not in page(results)


def test_a_floor_of_tokens_is_a_line_among_the_losses():
    value = math.exp(2.5)
    floor = Variant("", "done", name="unigram model", scores={"token-perplexity": Score(value, value, value, [value])})
    curve = [[float(step), 4.0 - step / 10] for step in range(1, 11)]
    band = [[step, value - 0.1, value + 0.1] for step, value in curve]
    rows = [Variant("vanilla", "done", validation_curve=curve, validation_band=band), floor]
    chart = curves(
        Results("t", "d", "vanilla", "token-perplexity", [], rows, {"token-perplexity": MetricInfo("", False)})
    )
    assert (chart.rule, chart.rule_name) == (pytest.approx(2.5), "unigram model")
    assert chart.lines[0].band == [tuple(point) for point in band]
    assert "unigram model" in texts(chart.svg())


def test_differences_are_in_a_row_each_with_the_margin_behind():
    chart = differences(small())
    assert [point.y for point in chart.points] == [name for name, *_ in VARIANTS[1:]]
    assert chart.zone == pytest.approx(0.02 * 41.2)
    assert chart.points[0].x == pytest.approx(33.9 - 41.2)


def test_the_steep_beginning_of_a_loss_leaves_room_for_its_end():
    curve = [[float(step), 9.0 if step < 10 else 2.0 - step / 1000] for step in range(1, 201)]
    chart = curves(bare(Variant("vanilla", loss_curve=curve)))
    assert chart.top is not None
    assert chart.top < 2.0
    assert "8" not in texts(chart.svg())


def test_curves_are_thinned_to_means_and_lose_what_is_no_number():
    curve = [[float(step), 2.0 if step % 2 else 4.0] for step in range(1, 801)] + [[801.0, float("nan")]]
    drawn = thinned(curve)
    assert len(drawn) == 80
    assert drawn[0] == (5.5, 3.0)
    text = page(bare(Variant("vanilla", loss_curve=curve)))
    assert "nan" not in text.split("<script>")[0].lower()


# In a browser, where there is one ---------------------------------------------------------------------------------


def drawn_page(results: Results, tmp_path) -> str:
    """Return the page's elements after its script has run to its end."""
    file = tmp_path / "page.html"
    file.write_text(page(results), encoding="utf-8")
    dom = shown(file)
    assert 'data-ready="true"' in re.findall("<html[^>]*>", dom)[0]
    assert "NaN" not in re.sub(r"<script.*?</script>", "", dom, flags=re.DOTALL)
    return dom


@in_a_browser
def test_everything_is_drawn(tmp_path):
    dom = drawn_page(sample_results(layers=2, count=3, size=5), tmp_path)
    parts = {
        name: dom.split(f'<section id="{name}"')[1].split("</section>")[0]
        for name in ("costs", "learning", "attention", "table")
    }
    assert parts["costs"].count('role="img"') == 4
    assert parts["learning"].count('role="img"') == 2
    assert parts["attention"].count("<img") == 9 * 2 * 2 * 3
    assert parts["attention"].count('role="img"') == 9 * 2 * 2
    # Heads became buttons that sort.
    assert parts["table"].count("<button") == 7 + 5


@in_a_browser
@pytest.mark.parametrize(
    "results", [BARE[0], BARE[1], BARE[5], BARE[6]], ids=["none", "failed", "one point", "no width"]
)
def test_little_gives_no_error(results, tmp_path):
    drawn_page(results, tmp_path)


@in_a_browser
def test_hostile_texts_do_not_run(tmp_path):
    attack = "</script><img src=x onerror=\"document.documentElement.dataset.errors='run'\">"
    dom = drawn_page(changed(small(), attack), tmp_path)
    assert "data-errors" not in re.findall("<html[^>]*>", dom)[0]
    assert "<img src=x" not in dom


WIDTH = """<iframe src="page.html" width="{width}" height="800" onload="
    const page = this.contentDocument, inside = page.documentElement;
    const boxes = [...page.querySelectorAll('.scroll')].filter(box => box.scrollWidth > box.clientWidth + 1);
    document.title = [inside.scrollWidth <= {width} + 1, boxes.length].join(' ')"></iframe>"""


@in_a_browser
@pytest.mark.parametrize("width", [400, 1200])
def test_nothing_scrolls_sideways(width, tmp_path):
    """Tables fit a screen, and are cards on a phone."""
    (tmp_path / "page.html").write_text(page(sample_results(layers=1, count=2, size=4)), encoding="utf-8")
    (tmp_path / "frame.html").write_text(WIDTH.format(width=width), encoding="utf-8")
    dom = shown(tmp_path / "frame.html", "--allow-file-access-from-files", "--window-size=1600,1000")
    assert "<title>true 0</title>" in dom
