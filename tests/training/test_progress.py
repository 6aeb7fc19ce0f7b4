"""Progress in notebooks: bars that the browser draws, and no control codes of a terminal."""

import sys
import types

import pytest

from synthattn.training import progress

pytestmark = pytest.mark.unchecked


class Handle:
    def __init__(self, shown: list[str]) -> None:
        self.shown = shown

    def update(self, html: str) -> None:
        self.shown.append(html)


@pytest.fixture
def notebook(monkeypatch):
    """What a notebook's kernel has, as far as bars use it; returns all that was shown."""
    shown: list[str] = []

    def display(html: str, display_id: bool) -> Handle:
        shown.append(html)
        return Handle(shown)

    shell = type("ZMQInteractiveShell", (), {})()
    kernel, displays = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    kernel.__dict__.update(get_ipython=lambda: shell, display=displays)
    displays.__dict__.update(display=display, HTML=str)
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    monkeypatch.setitem(sys.modules, "IPython.display", displays)
    monkeypatch.delitem(sys.modules, "transformers.utils.notebook", raising=False)
    yield shown
    sys.modules.pop("transformers.utils.notebook", None)


def test_a_bar_of_a_notebook(notebook, capsys):
    make, close = progress.displays(quiet=False)
    shown = make("<b>random</b>")
    assert isinstance(shown, progress.NotebookBar)
    for step in (1, 2, 3):
        shown.step(step, 3, {"loss": "<i>2</i>"})
    shown.scored(1, 4)
    shown.overall(0.5, "about 3 s left")
    shown.note("a\x1b[2Jb")
    shown.close()
    close()
    bars = [html for html in notebook if html]
    assert "&lt;b&gt;random&lt;/b&gt;" in bars[0]
    assert "loss &lt;i&gt;2&lt;/i&gt;" in bars[0]
    assert "value='3' max='3'" in bars[2]
    assert "value='1' max='4'" in bars[3]
    assert "value='50' max='100'" in bars[4]
    assert notebook[-1] == ""
    assert "\x1b" not in "".join([*notebook, *capsys.readouterr()])


def test_a_run_by_time_has_no_known_end(notebook):
    shown = progress.display("run", quiet=False)
    for step in range(1, 4):
        shown.step(step, 0, {})
    shown.close()
    assert "value='3' max='4'" in "".join(notebook)


def test_elsewhere_there_are_lines(capsys):
    shown = progress.display("run", quiet=False)
    shown.step(1, 1, {"loss": "2"})
    assert capsys.readouterr().err == "run: step 1/1  loss 2\n"
    assert type(progress.display("run", quiet=True)) is progress.Display
