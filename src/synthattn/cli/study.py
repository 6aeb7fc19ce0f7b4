"""The verb ``synthattn study``."""

from pathlib import Path

from synthattn.cli.command import split
from synthattn.messages import suggestion
from synthattn.paper import abilities
from synthattn.paper.abilities_page import ABILITIES, RECORD, table, write_abilities
from synthattn.render import terminal
from synthattn.terminal import SafeConsole

STUDIES = (ABILITIES,)


def run(
    name: str, attention: str | None, some: str | None, seeds: int, steps: int, output: Path, show: bool, quiet: bool
) -> int:
    if name not in STUDIES:
        raise ValueError(f"there is no study {name!r}{suggestion(name, STUDIES)}")
    console, path = SafeConsole(), output / ABILITIES / RECORD
    if show:
        if not path.is_file():
            raise ValueError(f"there is no record {path}; leave --show out to make one")
        found = abilities.load(path)
    else:
        variants: list[str] = split(attention) if attention else list(abilities.ATTENTION)
        chosen = [one.strip() for one in some.split(",")] if some else list(abilities.ABILITIES)
        plan = abilities.AbilityPlan(variants, chosen, seeds, steps)
        found = abilities.study(plan, path, lambda text: None if quiet else console.print(text, soft_wrap=True))
    write_abilities(output)
    if not quiet:
        terminal.show(console, [table(found)])
        console.print(f"Page: {path.parent}", soft_wrap=True)
    return 0
