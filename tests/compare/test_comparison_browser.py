"""The page in a browser, where there is one: it draws everything and reports no error."""

import re
import shutil
import subprocess

import pytest
from report_helpers import sample_results

from synthattn.compare.page import page
from synthattn.compare.results import Results, Variant

NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"]
BROWSER = next((found for name in NAMES if (found := shutil.which(name))), None)

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium to be found")


def drawn(results: Results, tmp_path) -> str:
    """The page's elements after its script has run."""
    file = tmp_path / "page.html"
    file.write_text(page(results), encoding="utf-8")
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom"]
    command = [str(BROWSER), *flags, f"--user-data-dir={tmp_path / 'profile'}", file.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def part(dom: str, name: str) -> str:
    return dom.split(f'<section id="{name}"')[1].split("</section>")[0]


def opening(dom: str) -> str:
    return re.findall("<html[^>]*>", dom)[0]


def test_everything_is_drawn(tmp_path):
    dom = drawn(sample_results(layers=2, count=3, size=5), tmp_path)
    assert 'data-ready="true"' in opening(dom)
    assert part(dom, "costs").count('role="img"') == 4
    assert part(dom, "learning").count('role="img"') == 2
    attention = part(dom, "attention")
    assert attention.count("<img") == 9 * 2 * 2 * 3
    assert attention.count('role="img"') == 9 * 2 * 2
    # Heads became buttons that sort.
    assert part(dom, "table").count("<button") == 7 + 5
    assert "NaN" not in dom.split("<script>")[0]


@pytest.mark.parametrize(
    "variants",
    [
        [],
        [Variant("vanilla", "failed", "no memory")],
        [Variant("vanilla", "running", loss_curve=[[1.0, 5.0]])],
        [Variant("vanilla", "running", validation_curve=[[0.0, -1.0], [0.0, -1.0]])],
    ],
    ids=["nothing", "failed", "one point", "no width"],
)
def test_little_gives_no_error(variants, tmp_path):
    dom = drawn(Results("task", "data", "vanilla", "metric", [], variants, {}), tmp_path)
    assert 'data-ready="true"' in opening(dom)
    assert "NaN" not in re.sub(r"<script.*?</script>", "", dom, flags=re.DOTALL)


def test_hostile_texts_do_not_run(tmp_path):
    text = "</script><img src=x onerror=\"document.documentElement.dataset.errors='run'\">"
    results = sample_results(layers=1, count=1, size=2)
    for variant in results.variants:
        variant.attention += text
        variant.samples = [sample + text for sample in variant.samples]
    results.baseline += text
    dom = drawn(results, tmp_path)
    assert 'data-ready="true"' in opening(dom)
    assert "data-errors" not in opening(dom)
    assert "<img src=x" not in dom
