"""Results of a table of the paper: a study with verdicts on the paper's claims."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from synthattn.compare.results import FILE, StudyResults, load_study

Judgement = Literal["holds", "does not hold", "undecided", "not run"]
Kind = Literal["text", "table", "elsewhere"]
JUDGEMENTS: tuple[Judgement, ...] = ("holds", "does not hold", "undecided", "not run")


@dataclass
class Verdict:
    """A claim of the paper, and whether it holds here."""

    claim: str
    """In words a newcomer follows."""
    where: str
    """Where the paper says so: ``abstract``, ``Table 2``."""
    part: str
    scale: str
    judgement: Judgement
    because: str
    """Our numbers and the test that was used, in a sentence or two."""
    in_paper: str = ""
    """What the paper's own numbers say, which is not always what its text says."""
    in_paper_holds: bool | None = None
    """By its own numbers; None where it has none."""
    runs: int = 0
    """How many of each row it rests on; 0 where there are none, or where it is not about scores."""
    kind: Kind = "text"
    """Whether the paper says so in words, or its table does, or another paper's."""


@dataclass
class Outcome(StudyResults):
    """Results of a whole table."""

    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def table(self) -> str:
        """The name on the command line."""
        return self.name


def load(folder: Path) -> Outcome:
    """Read ``results.json`` of a table."""
    return load_study(Outcome, folder / FILE)
