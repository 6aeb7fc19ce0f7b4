"""Displays of progress: a bar in a terminal or a notebook, plain lines elsewhere, or nothing."""

import sys
import time
from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback

from synthattn.messages import printable


class Display:
    """A display that shows nothing, and the base of those that do."""

    def note(self, text: str) -> None:
        """Show a message."""

    def step(self, step: int, steps: int, facts: dict[str, str]) -> None:
        """Show the progress of training; ``steps`` is 0 if the end is not known."""

    def scored(self, done: int, total: int) -> None:
        """Show the progress of evaluation."""

    def overall(self, part: float, left: str) -> None:
        """Show the progress of several runs together: the finished part, from 0 to 1, and the time that is left."""

    def close(self) -> None:
        """End the display."""


class LogLines(Display):
    """A display that prints a line every few seconds, for log files."""

    def __init__(self, prefix: str = "", seconds: float = 10.0) -> None:
        self.prefix, self.seconds = prefix, seconds
        self.last = 0.0

    def note(self, text: str) -> None:
        print(printable(f"{self.prefix}{text}"), file=sys.stderr, flush=True)

    def step(self, step: int, steps: int, facts: dict[str, str]) -> None:
        if self._due(step == steps):
            shown = "  ".join(f"{name} {value}" for name, value in facts.items())
            self.note(f"step {step:,}{f'/{steps:,}' if steps else ''}  {shown}")

    def scored(self, done: int, total: int) -> None:
        if self._due(done == total):
            self.note(f"scored {done:,}/{total:,}")

    def overall(self, part: float, left: str) -> None:
        if self._due(part >= 1):
            self.note(f"{part:.0%} done, {left}")

    def _due(self, last: bool) -> bool:
        if not last and time.monotonic() - self.last < self.seconds:
            return False
        self.last = time.monotonic()
        return True


class ProgressBar(Display):
    """A display with a progress bar, for terminals."""

    def __init__(self, name: str, progress: Any = None) -> None:
        self.name = name
        self.own = progress is None
        self.progress = progress or new_progress()
        if self.own:
            self.progress.start()
        self.task = self.progress.add_task(name, total=None, facts="")

    def note(self, text: str) -> None:
        self.progress.console.print(text)

    def step(self, step: int, steps: int, facts: dict[str, str]) -> None:
        shown = "  ".join(f"{name} {value}" for name, value in facts.items())
        self.progress.update(self.task, completed=step, total=steps or None, facts=shown)

    def scored(self, done: int, total: int) -> None:
        self.progress.update(self.task, completed=done, total=total, facts="scoring")

    def overall(self, part: float, left: str) -> None:
        self.progress.update(self.task, completed=round(100 * part), total=100, facts=left)

    def close(self) -> None:
        if self.own:
            self.progress.stop()


class NotebookBar(Display):
    """A display with a progress bar of a notebook, which is drawn by the browser."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.bar: Any = None

    def note(self, text: str) -> None:
        print(printable(f"{self.name}: {text}"), flush=True)

    def step(self, step: int, steps: int, facts: dict[str, str]) -> None:
        self._show(step, steps, "  ".join(f"{name} {value}" for name, value in facts.items()))

    def scored(self, done: int, total: int) -> None:
        self._show(done, total, "scoring")

    def overall(self, part: float, left: str) -> None:
        self._show(round(100 * part), 100, left)

    def _show(self, done: int, total: int, facts: str) -> None:
        from html import escape

        from transformers.utils.notebook import NotebookProgressBar

        # Labels come from outside, and a notebook would run what is in them. A bar goes forwards only.
        if self.bar is None or done < self.bar.value:
            self.close()
            self.bar = NotebookProgressBar(total, prefix=escape(printable(self.name)), leave=False)
        self.bar.total = total or done + 1  # 0 if the end is not known
        self.bar.update(done, force_update=done >= self.bar.total, comment=escape(printable(facts)))

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


def _in_notebook() -> bool:
    """Return True in the kernel of a notebook. Nothing is imported, because only IPython could have started it."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


def new_progress() -> Any:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from synthattn.terminal import SafeConsole

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[facts]}", markup=False),
        TimeRemainingColumn(compact=True),
        console=SafeConsole(stderr=True),
    )


def display(name: str, quiet: bool) -> Display:
    """Return a bar in a terminal or a notebook, lines elsewhere, or nothing if ``quiet``."""
    if quiet:
        return Display()
    if _in_notebook():
        return NotebookBar(name)
    return ProgressBar(name) if sys.stderr.isatty() else LogLines(f"{name}: ")


def displays(quiet: bool) -> tuple[Callable[[str], Display], Callable[[], None]]:
    """Return a function that makes the display of a run from its label, and one that closes all of them."""
    if quiet:
        return lambda name: Display(), lambda: None
    if _in_notebook():
        return NotebookBar, lambda: None
    if not sys.stderr.isatty():
        return lambda name: LogLines(f"{name}: "), lambda: None
    progress = new_progress()
    progress.start()
    return lambda name: ProgressBar(name, progress), progress.stop


class Reporter(TrainerCallback):
    """Trainer callback that passes progress to a display."""

    def __init__(self, display: Display, steps: int) -> None:
        self.display, self.steps = display, steps
        self.facts: dict[str, str] = {}
        self.trainer: Any = None
        self.started = self.tokens = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.started, self.tokens = time.monotonic(), self.trainer.tokens

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        seconds = max(time.monotonic() - self.started, 1e-9)
        self.facts["tokens/s"] = f"{(self.trainer.tokens - self.tokens) / seconds:,.0f}"
        self.facts["padding"] = f"{1 - self.trainer.tokens / max(1, self.trainer.padded):.0%}"
        self.display.step(state.global_step, self.steps, self.facts)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        for name, shown in (("loss", "loss"), ("eval_loss", "validation")):
            if logs and name in logs:
                self.facts[shown] = f"{logs[name]:.3f}"
