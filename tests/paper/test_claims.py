"""Verdicts follow from numbers: made-up rows whose truth is known, and the paper's own numbers."""

import numpy as np
import pytest
from sample_outcome import new_part, new_row

from synthattn.compare.results import Difference, MetricInfo, Results, Score
from synthattn.compare.statistics import Estimate, seed_variance
from synthattn.paper import evidence
from synthattn.paper.claims import CLAIMS, Claim, Gap, Number, decide, verdicts
from synthattn.paper.recipes import SCALES, TABLES, PaperPart, recipe


def part(higher: bool = True, values: tuple[float, float] = (27.0, 28.0)) -> Results:
    rows = [
        new_row(name, name.lower(), name.lower(), scores={"score": Score(value, value, value, [value])})
        for name, value in zip(("A", "B"), values, strict=True)
    ]
    return new_part("here", "Here", "cpu", "A", {"score": MetricInfo("made up", higher)}, rows)


def apart(low: float, high: float, seeds: int = 3, trend: tuple[float, ...] | None = None):
    """B is better than A by this interval; with several seeds its error has many degrees of freedom."""
    middle = (low + high) / 2

    def found(row: str, than: str, metric: str) -> Gap | None:
        estimate = Estimate(middle, (high - low) / 3.92, 1e6) if seeds > 1 else None
        difference = Difference(middle, low, high, 0.05)
        return Gap(27.0 + middle, 27.0, difference, seeds, 500, estimate, trend, 2.0)

    return found


def judged(claim: Claim, found: Results, gaps) -> str:
    return decide([claim.ours(found, gaps)])[0].judgement


@pytest.mark.parametrize(
    ("higher", "low", "high", "judgement"),
    [
        (True, 0.1, 0.9, "holds"),
        (True, -0.1, 0.9, "undecided"),
        (True, -0.9, -0.1, "does not hold"),
        (False, 0.1, 0.9, "does not hold"),
        (False, -0.1, 0.9, "undecided"),
        (False, -0.9, -0.1, "holds"),
    ],
)
def test_better(higher, low, high, judgement):
    claim = Claim("B beats A.", "Table 0", "here", "B", "A", "better")
    assert judged(claim, part(higher), apart(low, high)) == judgement


@pytest.mark.parametrize(
    ("higher", "low", "high", "judgement"),
    [
        # A has 27, so a tenth is 2.7.
        (True, -2.6, 5.0, "holds"),
        (True, -2.8, 5.0, "undecided"),
        (True, -9.0, -2.8, "does not hold"),
        (False, -5.0, 2.6, "holds"),
        (False, -5.0, 2.8, "undecided"),
        (False, 2.8, 9.0, "does not hold"),
    ],
)
def test_within(higher, low, high, judgement):
    claim = Claim("B is nearly as good as A.", "Table 0", "here", "B", "A", "within", 0.1)
    assert judged(claim, part(higher), apart(low, high)) == judgement


@pytest.mark.parametrize(("floor", "judgement"), [(26.0, "holds"), (27.5, "holds"), (28.5, "below the floor")])
def test_a_floor_that_wins(floor, judgement):
    """A scores 27 and B 28: the better of the two must be above the system without a model."""
    found = part()
    score = Score(floor, floor, floor, [floor])
    found.rows.append(new_row("first words of the source", "floor", "", scores={"score": score}))
    for claim in (Claim("", "", "here", "B", "A", "better"), Claim("", "", "here", "B", "A", "within", 0.1)):
        result = decide([claim.ours(found, apart(0.5, 1.5))])[0]
        assert result.judgement == judgement
        assert ("first words of the source: 28.50" in result.because) == (judgement == "below the floor")


def test_where_less_is_better_the_floor_is_above():
    found = part(higher=False)
    for floor, judgement in ((30.0, "holds"), (26.0, "below the floor")):
        row = new_row("unigram model", "floor", "", scores={"score": Score(floor, floor, floor, [floor])})
        found.rows[2:] = [row]
        assert judged(Claim("", "", "here", "B", "A", "better"), found, apart(-1.5, -0.5)) == judgement


def test_a_lucky_seed_decides_nothing():
    """However far all of the interval is on one side."""
    claim = Claim("B beats A.", "Table 0", "here", "B", "A", "better")
    for low, high in ((8.0, 9.0), (-9.0, -8.0)):
        result = decide([claim.ours(part(), apart(low, high, seeds=1))])[0]
        assert (result.judgement, result.runs) == ("one run", 1)
        assert len(result.effect) == 3
    assert judged(claim, part(), apart(8.0, 9.0, seeds=2)) == "holds"


def test_one_run_is_not_counted_in_the_adjustment():
    claim = Claim("B beats A.", "Table 0", "here", "B", "A", "better")
    # Its own p-value is 0.045: two counted claims would make it 0.09.
    nearly = claim.ours(part(), apart(0.5 - 0.478, 0.5 + 0.478))
    assert nearly.p_value is not None
    assert 0.025 < nearly.p_value < 0.05
    single = claim.ours(part(), apart(8.0, 9.0, seeds=1))
    assert [one.judgement for one in decide([nearly, single, single])] == ["holds", "one run", "one run"]
    assert [one.judgement for one in decide([nearly, nearly])] == ["undecided", "undecided"]


def test_holm_takes_the_smallest_first():
    claim = Claim("B beats A.", "Table 0", "here", "B", "A", "better")
    sure, nearly = claim.ours(part(), apart(5.0, 6.0)), claim.ours(part(), apart(0.022, 0.978))
    result = decide([nearly, sure])
    assert [one.judgement for one in result] == ["holds", "holds"], "the largest p-value is not multiplied"
    assert result[1].because.endswith("p < 0.001, adjusted for 2 claims")


@pytest.mark.parametrize(
    ("trend", "judgement"),
    [
        ((-0.3, -0.2, -0.15), "holds"),
        ((-0.3, -0.2, -0.1), "moving"),
        ((-0.3, -0.2, 0.1), "moving"),
        ((0.3, -0.2, -0.2), "holds"),
        ((-0.3, -0.002, 0.001), "holds"),  # both are nothing beside a loss of 2
        (None, "holds"),
    ],
)
def test_a_moving_gap(trend, judgement):
    claim = Claim("B beats A.", "Table 0", "here", "B", "A", "better")
    result = decide([claim.ours(part(), apart(0.5, 1.5, trend=trend))])[0]
    assert result.judgement == judgement
    assert ("gap in validation loss at 50, 75 and 100 % of training" in result.because) == (trend is not None)


def test_speed_on_another_machine_is_not_comparable():
    found = part()
    found.rows[0].training_speed, found.rows[1].training_speed = 1.0, 2.0
    found.rows[1].spread = {"training_speed": [1.9, 2.1]}
    result = Claim("B is 60 % faster.", "Table 0", "here", "B", "A", "faster", 1.6).ours(found, apart(0, 0))
    assert result.judgement == "not comparable"
    assert "2.00 times as fast" in result.because


def test_intervals_have_the_pooled_variance_of_seeds():
    """Two rows that happen to differ alike in both seeds are no more certain than the rest of the table."""
    table = [[10.0, 12.0, 11.0], [13.0, 15.0, 14.0], [9.0, 14.0, 12.0]]
    found = seed_variance(table)
    assert found is not None
    rows = np.array(table)
    # As a textbook has it: the residuals of a table without interaction, of which a difference has two.
    left = rows - rows.mean(0) - rows.mean(1, keepdims=True) + rows.mean()
    assert found.value == pytest.approx(2 * (left**2).sum() / 4)
    assert found.freedom == 4
    assert np.var(rows[1] - rows[0]) == 0
    assert found.value > 0
    assert seed_variance(table[:1]) is None
    assert seed_variance([[1.0], [2.0]]) is None


def test_an_estimate_is_that_of_student():
    found = Estimate(3.0, 1.5, 4.0)
    assert found.interval == pytest.approx((3 - 2.7764451 * 1.5, 3 + 2.7764451 * 1.5))
    assert found.p_value() == pytest.approx(0.11611652)
    assert found.p_value(3.0) == 1.0
    assert Estimate(3.0, 0.0, 4.0).interval == (3.0, 3.0)


def test_what_was_not_run_is_said():
    nothing = lambda row, than, metric: None  # noqa: E731
    for claim in (
        Claim("", "", "here", "B", "A", "better"),
        Claim("", "", "here", "B", "A", "within", 0.1),
        Claim("", "", "here", "B", "A", "faster", 1.0),
    ):
        result = claim.ours(part(), nothing)
        assert (result.judgement, result.runs, result.p_value) == ("not run", 0, None)
        assert "B and A" in result.because


@pytest.mark.parametrize("higher", [True, False])
def test_the_papers_own_numbers_are_judged(higher):
    found = part(higher)
    numbers = {"A": Number(27.67, "BLEU"), "B": Number(27.57, "BLEU", "somebody, 2021")}
    printed = lambda row, metric: numbers.get(row) if metric == "score" else None  # noqa: E731
    text = "BLEU: B 27.57 (somebody, 2021), A 27.67"
    assert Claim("", "", "here", "B", "A", "better").theirs(found, printed) == (not higher, text)
    assert Claim("", "", "here", "B", "A", "within", 0.01).theirs(found, printed) == (True, text)
    assert Claim("", "", "here", "B", "A", "within", 0.001).theirs(found, printed) == (not higher, text)
    assert Claim("", "", "here", "B", "C", "better").theirs(found, printed) is None


def test_shares_of_logarithms_are_of_what_they_are_of():
    """A perplexity of exp(1.9) is 5 % more than one of exp(1.85); of the logarithm, 0.05 would be 2.7 %."""
    found = part(higher=False)
    numbers = {"A": Number(1.85, "log", logarithm=True), "B": Number(1.9, "log", logarithm=True)}
    printed = lambda row, metric: numbers[row]  # noqa: E731
    assert Claim("", "", "here", "B", "A", "within", 0.04).theirs(found, printed) == (False, "log: B 1.9, A 1.85")
    assert Claim("", "", "here", "B", "A", "within", 0.06).theirs(found, printed) == (True, "log: B 1.9, A 1.85")


def test_what_is_read_from_a_table_is_what_it_says(tmp_path):
    """And whose claim it is, is told from where it stands."""
    found = {table: evidence.collect(tmp_path, table).verdicts for table in CLAIMS}
    for table, judged in found.items():
        for verdict in judged:
            if verdict.kind != "text":
                assert verdict.in_paper_holds, verdict.claim
        assert {verdict.kind for verdict in judged} <= ({"elsewhere"} if table == "lra" else {"text", "table"})
    wrong = {verdict.in_paper for judged in found.values() for verdict in judged if verdict.in_paper_holds is False}
    # Section 7.11 of what is known of the paper: mixtures do not consistently beat the Transformer.
    assert wrong == {
        "BLEU: Dense + Vanilla 27.57, Transformer 27.67",
        "BLEU: Dense + Vanilla 41.38, Transformer 41.57",
        "perplexity: Random + Vanilla 40.05, Transformer 38.21",
        "ROUGE-2: Syn (D+V) 16.64, Transformer 17.1",
        "ROUGE-2: Syn (R+V) 16.24, Transformer 17.1",
        "GLUE: Syn (D+V) 82.6, T5 (Base) 83.5",
        "SGLUE: Syn (D+V) 69.7, T5 (Base) 70.3",
    }
    spans = [verdict.in_paper for verdict in found["c4"]]
    assert "log perplexity: Syn (R+V) 1.849 (in part Narang et al., 2021), Transformer 1.865" in spans


def test_the_test_is_named():
    claim = Claim("B beats A.", "Table 0", "here", "B", "A", "better")
    assert "paired bootstrap over 500 examples, one seed" in claim.ours(part(), apart(0.1, 0.9, seeds=1)).because
    assert "Student's t, 3 seeds" in claim.ours(part(), apart(0.1, 0.9)).because


def test_claims_are_about_rows_that_there_are():
    """A claim that is never judged is no claim: its part and its rows are those of a recipe."""
    for table, claims in CLAIMS.items():
        known = {part.name: part for scale in SCALES for part in recipe(table, scale).parts}
        for claim in claims:
            chosen = known[claim.part]
            rows = [new_row(row.name, row.key, row.attention, speed=(9.0, 9.0, 9.0)) for row in chosen.rows]
            names = {row.name for row in rows}
            found = new_part(
                claim.part, "", "cpu", chosen.baseline.name, {chosen.metrics[0]: MetricInfo("", True)}, rows
            )
            found.metrics |= {name: MetricInfo("", True) for name in chosen.metrics}
            asked: set[str] = set()

            def remember(row: str, than: str, metric: str, asked: set[str] = asked) -> Gap | None:
                asked.update((row, than))
                return apart(8.0, 9.0)(row, than, metric)

            assert claim.ours(found, remember).judgement != "not run", claim.text
            assert asked <= names, claim.text


def test_published_rows_are_those_of_the_recipes():
    """A name that is spelled otherwise would lose its number."""
    for table in TABLES:
        for part in recipe(table, "paper").parts:
            assert isinstance(part, PaperPart)
            if part.published is not None and table != "encoding":
                published = {row.name for row in part.published.rows}
                ours = {row.name for row in part.rows}
                assert len(published & ours) >= min(3, len(published)), table
                assert published - ours <= {"Transformer (Vaswani et al., 2017)"}, table


def test_every_part_is_judged_by_itself():
    here, there = part(), part()
    there.scale = "paper"
    nothing = lambda row, metric: None  # noqa: E731
    parts = [(here, apart(0.1, 0.9), nothing), (there, apart(-0.9, -0.1, seeds=2), nothing)]
    CLAIMS["made-up"] = [Claim("B beats A.", "Table 0", "here", "B", "A", "better")]
    try:
        found = verdicts("made-up", parts)
    finally:
        del CLAIMS["made-up"]
    assert [(one.scale, one.judgement, one.runs) for one in found] == [
        ("cpu", "holds", 3),
        ("paper", "does not hold", 2),
    ]
