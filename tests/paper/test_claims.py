"""Verdicts follow from numbers: made-up rows whose truth is known, and the paper's own numbers."""

import pytest
from sample_outcome import new_part, new_row

from synthattn.compare.plan import ONE_ANSWER
from synthattn.compare.results import Difference, MetricInfo, Results, Score
from synthattn.paper import evidence
from synthattn.paper.claims import CLAIMS, Claim, Gap, Number, verdicts
from synthattn.paper.recipes import SCALES, TABLES, PaperPart, recipe


def part(higher: bool = True, values: tuple[float, float] = (27.0, 28.0)) -> Results:
    rows = [
        new_row(name, name.lower(), name.lower(), scores={"score": Score(value, value, value, [value])})
        for name, value in zip(("A", "B"), values, strict=True)
    ]
    return new_part("here", "Here", "cpu", "A", {"score": MetricInfo("made up", higher)}, rows)


def apart(low: float, high: float, seeds: int = 1):
    middle = (low + high) / 2

    def found(row: str, than: str, metric: str) -> Gap | None:
        if than == ONE_ANSWER.name:
            return None
        return Gap(27.0 + middle, 27.0, Difference(middle, low, high, 0.05), seeds, 500)

    return found


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
    assert claim.ours(part(higher), apart(low, high))[0] == judgement


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
    assert claim.ours(part(higher), apart(low, high))[0] == judgement


def above_one_answer(lows: dict[str, float]):
    """B is one better than A; ``lows``: how far each is at least above one answer for all."""

    def found(row: str, than: str, metric: str) -> Gap | None:
        if than != ONE_ANSWER.name:
            return Gap(28.0, 27.0, Difference(1.0, 0.5, 1.5, 0.01), 1, 500)
        if row not in lows:
            return None
        return Gap(lows[row] + 27.0, 26.5, Difference(lows[row] + 0.5, lows[row], lows[row] + 1.0, 0.05), 1, 500)

    return found


@pytest.mark.parametrize(
    ("lows", "judgement", "said"),
    [
        ({"A": 0.1, "B": 0.1}, "holds", "all of the interval"),
        ({"A": 0.1, "B": -0.1}, "holds", "all of the interval"),
        # A is the baseline: what has learned nothing is no opponent.
        ({"A": -0.1, "B": 0.1}, "undecided", "A is not clearly above 26.50"),
        ({"A": -0.1, "B": -0.1}, "undecided", "neither is clearly above 26.50"),
        ({}, "holds", "all of the interval"),
    ],
)
def test_models_that_have_learned_nothing_decide_nothing(lows, judgement, said):
    for claim in (Claim("", "", "here", "B", "A", "better"), Claim("", "", "here", "B", "A", "within", 0.1)):
        found = claim.ours(part(), above_one_answer(lows))
        assert found.judgement == judgement
        assert said in found.because


def test_another_row_than_the_baseline_may_have_learned_nothing():
    found = part()
    found.baseline = "C"
    claim = Claim("", "", "here", "B", "A", "better")
    assert claim.ours(found, above_one_answer({"A": -0.1, "B": 0.1})).judgement == "holds"
    assert claim.ours(found, above_one_answer({"A": -0.1, "B": -0.1})).judgement == "undecided"


@pytest.mark.parametrize(
    ("speed", "judgement"),
    [((2.0, 1.9, 2.1), "holds"), ((1.6, 1.3, 1.9), "undecided"), ((1.2, 1.1, 1.3), "does not hold")],
)
def test_faster(speed, judgement):
    found = part()
    found.rows[0].training_speed, found.rows[1].training_speed = 1.0, speed[0]
    found.rows[1].spread = {"training_speed": list(speed[1:])}
    claim = Claim("B is 60 % faster.", "Table 0", "here", "B", "A", "faster", 1.6)
    assert claim.ours(found, apart(0, 0))[0] == judgement


def test_what_was_not_run_is_said():
    nothing = lambda row, than, metric: None  # noqa: E731
    for claim in (
        Claim("", "", "here", "B", "A", "better"),
        Claim("", "", "here", "B", "A", "within", 0.1),
        Claim("", "", "here", "B", "A", "faster", 1.0),
    ):
        judgement, because, runs = claim.ours(part(), nothing)
        assert (judgement, runs) == ("not run", 0)
        assert "B and A" in because


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
    # Section 7.11 of what is known of the paper: mixtures do not always beat the Transformer.
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
    assert "paired bootstrap over 500 examples, one seed" in claim.ours(part(), apart(0.1, 0.9))[1]
    assert "Student's t, 3 seeds" in claim.ours(part(), apart(0.1, 0.9, seeds=3))[1]


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
            assert asked - {ONE_ANSWER.name} <= names, claim.text


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
    parts = [(here, apart(0.1, 0.9), nothing), (there, apart(-0.9, -0.1, seeds=3), nothing)]
    CLAIMS["made-up"] = [Claim("B beats A.", "Table 0", "here", "B", "A", "better")]
    try:
        found = verdicts("made-up", parts)
    finally:
        del CLAIMS["made-up"]
    assert [(one.scale, one.judgement, one.runs) for one in found] == [
        ("cpu", "holds", 1),
        ("paper", "does not hold", 3),
    ]
