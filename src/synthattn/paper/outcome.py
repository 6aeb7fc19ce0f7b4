"""The outcome of a table: results of its study, with verdicts on the paper's claims."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from synthattn.compare.results import FILE, StudyResults, load_study

Judgement = Literal[
    "holds", "does not hold", "moving", "undecided", "below the floor", "one run", "not comparable", "not run"
]
ClaimSource = Literal["text", "table", "elsewhere"]
JUDGEMENTS: tuple[Judgement, ...] = get_args(Judgement)


@dataclass
class ClaimVerdict:
    """A claim of the paper, and the verdict of our runs on it."""

    claim: str
    """The claim in plain words."""
    where: str
    """Place in the paper: ``abstract``, ``Table 2``."""
    part: str
    scale: str
    judgement: Judgement
    because: str
    """Our numbers and the test, in a sentence or two."""
    in_paper: str = ""
    """The paper's own numbers, which do not always agree with its text."""
    in_paper_holds: bool | None = None
    """Verdict of the paper's own numbers; None if it has none."""
    runs: int = 0
    """Number of runs of each row; 0 if there are none, or if the claim is not about scores."""
    kind: ClaimSource = "text"
    """Source of the claim: the paper's text, its tables, or another paper."""
    label: str = ""
    """The claim in a few words, for charts."""
    effect: list[float] = field(default_factory=list)
    """How far our estimate and the ends of its interval are beyond what the claim needs, in percent of the score of the
    row that it is compared with; empty for what is not about scores."""


@dataclass
class Outcome(StudyResults):
    """Results of a whole table, with verdicts."""

    verdicts: list[ClaimVerdict] = field(default_factory=list)

    @property
    def table(self) -> str:
        """Return the name of the table on the command line."""
        return self.name


def load(folder: Path) -> Outcome:
    """Read ``results.json`` of a table."""
    return load_study(Outcome, folder / FILE)
