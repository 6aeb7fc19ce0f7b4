"""The verb ``synthattn export``."""

from pathlib import Path

from synthattn.api import chosen
from synthattn.messages import listed
from synthattn.terminal import SafeConsole
from synthattn.training.export import export


def run(what: Path, form: str, name: str | None, output: Path | None, quiet: bool) -> int:
    found = export(chosen(what, name, quiet), form, output)
    if not quiet:
        console = SafeConsole()
        size = found.file.stat().st_size / 1e6
        console.print(f"{found.file}: {size:,.1f} MB", soft_wrap=True)
        console.print(f"inputs: {', '.join(found.inputs)}; output: {found.output}", soft_wrap=True)
        same = f"same outputs at lengths {listed(map(str, found.lengths))}"
        console.print(f"{same}; greatest difference {found.difference:.1g}", soft_wrap=True)
    return 0
