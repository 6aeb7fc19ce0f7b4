"""The page as a file: well formed, whole, safe, and not too large."""

import dataclasses
import re
from typing import Any

import pytest
from report_helpers import sample_results

from page_reader import Reader
from synthattn.compare.page import compared, page, thinned
from synthattn.compare.results import Metric, Published, Results, Sample, Score, Variant

HOSTILE = "</script></style>--><img src=x onerror=\"alert('x')\">&amp;<svg onload=alert(1)>"


def hostile(found: Any) -> Any:
    """The same, with a text in place of every text that tries to leave where it stands; maps stay maps."""
    if dataclasses.is_dataclass(found) and not isinstance(found, type):
        kept = {"maps", "status", "stack"}
        values = {f.name: getattr(found, f.name) for f in dataclasses.fields(found)}
        return type(found)(**{name: value if name in kept else hostile(value) for name, value in values.items()})
    if isinstance(found, str):
        return found + HOSTILE
    if isinstance(found, list):
        return [hostile(value) for value in found]
    if isinstance(found, dict):
        return {hostile(key): hostile(value) for key, value in found.items()}
    return found


def test_one_file_that_asks_for_nothing_else():
    text = page(sample_results())
    reader = Reader(text)
    assert {tag for tag, _ in reader.tags}.isdisjoint({"link", "iframe", "object", "embed", "base"})
    for _, attributes in reader.tags:
        assert (attributes.get("src") or "data:image/png;base64,").startswith("data:image/png;base64,")
        assert not {"srcset", "xlink:href", "action"} & attributes.keys()
        assert (attributes.get("href") or "#").startswith("#")
        assert not any(name.startswith("on") for name in attributes)
    assert set(re.findall(r"https?:[^\s\"')]*", text)) == {"http://www.w3.org/2000/svg"}
    assert "@import" not in text
    assert "url(" not in text
    policies = [a["content"] or "" for tag, a in reader.tags if tag == "meta" and a.get("http-equiv")]
    assert len(policies) == 1
    assert policies[0].startswith("default-src 'none'")


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
    plain, attacked = (Reader(page(results)) for results in (sample_results(), hostile(sample_results())))
    assert {tag for tag, _ in attacked.tags} == {tag for tag, _ in plain.tags}
    assert not any(name.startswith("on") for _, attributes in attacked.tags for name in attributes)
    assert HOSTILE in attacked.text("span")


def test_size_of_a_large_comparison():
    # Six and six layers of twelve heads in each of nine variants.
    text = page(sample_results(layers=6, count=12, size=24, points=3000))
    assert len(text.encode()) < 2_000_000


@pytest.mark.parametrize("missing", [f.name for f in dataclasses.fields(Variant) if f.name != "attention"])
def test_every_field_of_a_variant_may_be_missing(missing):
    results = sample_results(layers=1, count=1, size=2, points=3)
    results.rows = [*results.variants[:2], results.variants[-1]]  # the last one has failed
    empty = getattr(Variant("vanilla"), missing)
    for variant in results.variants:
        setattr(variant, missing, empty)
    text = page(results)
    Reader(text)  # which asserts that all tags are closed
    table = text.split("<table", 1)[1].split("</table>", 1)[0].replace("<wbr>", "")
    assert all(variant.attention in table for variant in results.variants)


@pytest.mark.parametrize(
    "results",
    [
        Results("t", "d", "vanilla", "m", [], [], {}),
        Results(
            "t", "d", "vanilla", "m", [], [Variant("vanilla", "failed", "no memory"), Variant("dense", "running")], {}
        ),
        Results(
            "t", "d", "none of them", "m", [], [Variant("dense", "done", scores={"n": Score(1.0, 1.0, 1.0, [])})], {}
        ),
        Results("t", "d", "vanilla", "m", [], [Variant("vanilla")], {}, samples=[Sample("", "")], notes=["note"]),
        Results("t", "d", "v", "m", [], [Variant("v")], {"m": Metric("", False)}, published=[Published("T", "m", {})]),
    ],
    ids=["nothing", "failures", "no baseline", "no answers", "no numbers in the paper"],
)
def test_little_is_enough(results):
    reader = Reader(page(results))
    tables = sum(tag == "thead" for tag, _ in reader.tags)
    assert sum(tag == "tr" for tag, _ in reader.tags) == tables * (1 + len(results.variants))
    assert "nan" not in reader.text("td").lower()


def test_samples_show_what_differs():
    variants = [
        Variant("vanilla", samples=["a b c d"]),
        Variant("dense", samples=["a x c d"]),
        Variant("random", samples=["a x c d"]),
        Variant("fixed_random", samples=["y z"]),
        Variant("relative", samples=[""]),
        Variant("interrupted", samples=[]),
    ]
    text = page(Results("t", "d", "vanilla", "m", [], variants, {}, samples=[Sample("source", "a b c d")]))
    answers = text.split('<dl class="answers">')[1].split("</dl>")[0]
    found = re.findall("<dt>(.*?)</dt><dd[^>]*>(.*?)</dd>", answers, flags=re.DOTALL)
    plain = [(re.sub("<wbr>|</?span[^>]*>", "", name).strip(), " ".join(said.split())) for name, said in found]
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
    results = Results("t", "d", "vanilla", "m", [], [Variant("vanilla", samples=["x"])], {})
    results.samples = [Sample("word " * 99, "x")]
    reader = Reader(page(results))
    assert len(reader.text("summary")) <= 160
    assert "word " * 99 in reader.text("dd")


def test_curves_are_thinned_to_means_and_lose_what_is_no_number():
    curve = [[float(step), 2.0 if step % 2 else 4.0] for step in range(1, 801)] + [[801.0, float("nan")]]
    drawn = thinned(curve)
    assert len(drawn) == 80
    assert drawn[0] == (5.5, 3.0)
    text = page(Results("t", "d", "vanilla", "m", [], [Variant("vanilla", loss_curve=curve)], {}))
    assert "nan" not in text.split("<script>")[0].lower()


def test_maps_of_all_heads_and_their_weights_are_there():
    results = sample_results(layers=2, count=3, size=5)
    reader = Reader(page(results))
    assert sum(tag == "img" for tag, _ in reader.tags) == 9 * 2 * 2 * 3
    tips = [a["title"] or "" for tag, a in reader.tags if tag == "img"]
    assert tips[0].startswith("encoder 1, head 1, 10 positions, largest weight 0.")
    shares = [a["style"] or "" for tag, a in reader.tags if tag == "td" and "style" in a]
    # Entropy of all heads; of three mixtures two terms each.
    assert len(shares) == 9 * 2 * 2 * 3 + 3 * 2 * 2 * 2 * 3
    assert all(0 <= float(share.removeprefix("--share:")) <= 1 for share in shares)
