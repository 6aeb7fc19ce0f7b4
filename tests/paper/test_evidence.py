"""Numbers of a table come from records alone, and a record that somebody drops in shows up."""

import dataclasses
import json
import lzma
import shutil

import numpy as np
import pytest

from synthattn import saved_file
from synthattn.compare import records
from synthattn.compare.collect import seed_variance
from synthattn.compare.execution import chosen_rate
from synthattn.compare.plan import ONE_ANSWER, slug
from synthattn.compare.records import StudyRecord, without_folders
from synthattn.paper import evidence
from synthattn.paper.evidence import place
from synthattn.training import record
from synthattn.training.evaluation import read_rows


def new_record(rate: float, loss: float, value: float) -> record.RunRecord:
    settings = {
        "data": {"source": "/home/me/data/ag_news", "vocab_size": 100, "task": "classification"},
        "model": {"preset": "cpu", "fields": {"d_ff": 8, "dropout": 0.2}, "start": None},
        "training": {
            "learning_rate": rate, "batch_tokens": 64, "accumulation": 1, "optimizer": "adam", "schedule": "linear",
            "warmup": 2, "keep": "last",
        },
    }  # fmt: skip
    return record.RunRecord(
        "done",
        settings=settings,
        model={"parameters": 1234, "configuration": {"d_ff": 8}},
        steps=10,
        validation=[[5, loss + 1], [10, loss]],
        evaluation={"splits": {"classification": "test"}},
        scores={"accuracy": {"value": value, "low": value - 1, "high": value + 1}},
        times={"training_seconds": 3.21},
        versions={"synthattn": "0.1", "torch": "2"},
    )


def keep(
    folder, row: str, seed: int, right: np.ndarray, rate: float = 1e-3, loss: float = 2.0, name: str = "",
    part: str = "ag_news", file: str = "",
) -> None:  # fmt: skip
    """A record of a classifier that was right for these examples."""
    values = right.astype(float)[:, None]
    found = new_record(rate, loss, 100 * float(right.mean()))
    scale = "cpu" if part == "ag_news" else "long"
    entry = StudyRecord("encoding", scale, part, row, seed, f"synthattn reproduce --rows {row}", found)
    entry.candidate = bool(name)
    if row == ONE_ANSWER.name:
        found.model, found.settings, found.steps = {}, {"data": found.settings["data"]}, 0
    path = place(folder, "encoding", scale, part, name or file or f"{slug(row)}-{seed}")
    entry.save(path, {"/home/me/data": "DATA"})
    np.savez(records.rows_file(path), accuracy=values)


@pytest.fixture
def results(tmp_path):
    draw = np.random.default_rng(0)
    for seed in range(3):
        keep(tmp_path, "Transformer", seed, draw.random(400) < 0.8)
    keep(tmp_path, "Linformer", 0, draw.random(400) < 0.4)
    keep(tmp_path, "Syn (FR)", 0, draw.random(400) < 0.7)
    keep(tmp_path, "Transformer", 0, draw.random(400) < 0.8, 1e-3, 2.0, "rates/0.001")
    keep(tmp_path, "Transformer", 0, draw.random(400) < 0.8, 3e-3, 1.5, "rates/0.003")
    return tmp_path


def test_scores_and_differences(results):
    part = evidence.collect(results, "encoding").parts[0]
    rows = {row.name: row for row in part.rows}
    base, other = rows["Transformer"].scores["accuracy"], rows["Linformer"].scores["accuracy"]
    right = [np.load(results / f"records/encoding/cpu/ag_news/transformer-{n}.npz")["accuracy"] for n in range(3)]
    assert base.by_seed == [pytest.approx(100 * one.mean()) for one in right]
    assert base.value == pytest.approx(np.mean(base.by_seed))
    assert base.difference is None
    assert other.difference is not None
    # One seed against the same seed of the baseline.
    assert other.difference.value == pytest.approx(other.by_seed[0] - base.by_seed[0])
    assert other.difference.high < 0
    assert other.difference.p_value < 0.05
    assert rows["Syn (R)"].status == "missing"
    assert rows["Linformer"].parameters == 1234
    assert rows["Transformer"].wanted_seeds == 3


def test_one_answer_for_all_is_compared_with_every_seed(results):
    """It has no seed."""
    keep(results, ONE_ANSWER.name, 0, np.arange(400) % 4 == 0)
    part = evidence.collect(results, "encoding").parts[0]
    rows = {row.name: row for row in part.rows}
    one, base = rows[ONE_ANSWER.name].scores["accuracy"], rows["Transformer"].scores["accuracy"]
    assert one.by_seed == [25.0]
    assert one.difference is not None
    assert one.difference.value == pytest.approx(25 - np.mean(base.by_seed))
    assert part.learned("accuracy")
    # Two of three seeds at chance are not clearly above it, whatever the first one is.
    for seed in (1, 2):
        keep(results, "Transformer", seed, np.arange(400) % 4 == 1)
    assert not evidence.collect(results, "encoding").parts[0].learned("accuracy")


def test_one_answer_for_all_decides_claims_by_every_seed(results):
    keep(results, ONE_ANSWER.name, 0, np.arange(400) % 4 == 0)
    claim = "Factorized Random can outperform Linformer (news)."
    for seed in (1, 2):
        for name, share in (("Linformer", 16), ("Syn (FR)", 28)):
            keep(results, name, seed, np.arange(400) % 40 < share)
    judged = {one.claim: one.judgement for one in evidence.collect(results, "encoding").verdicts}
    assert judged[claim] == "holds"
    for seed in (1, 2):
        for name in ("Linformer", "Syn (FR)"):
            keep(results, name, seed, np.arange(400) % 4 == 1)
    found = {one.claim: one for one in evidence.collect(results, "encoding").verdicts}
    assert found[claim].judgement == "below the floor"
    assert found[claim].because.endswith("neither clears the floor, One answer for all: 25.00")


def test_one_answer_for_all_changes_nothing_about_models(results):
    """It takes no part in the adjustment of p-values, and says nothing of how models were trained."""
    shutil.rmtree(results / "records/encoding/cpu/ag_news/rates")
    keep(results, "Transformer", 0, np.arange(400) % 4 < 3)
    keep(results, "Syn (R)", 0, np.arange(400) % 8 < 5)
    before = evidence.collect(results, "encoding").parts[0]
    keep(results, ONE_ANSWER.name, 0, np.arange(400) % 40 < 31)  # as good as the baseline: the highest p-value of all
    part = evidence.collect(results, "encoding").parts[0]
    assert part.facts == before.facts
    assert part.facts["steps"] == "10"
    assert [row.scores for row in part.models] == [row.scores for row in before.models]


def test_every_number_leads_to_its_record(results):
    part = evidence.collect(results, "encoding").parts[0]
    for row in part.rows:
        for run in row.runs:
            entry = records.load(results / run.record)
            assert (entry.row, entry.seed, entry.command) == (row.name, run.seed, run.command)
    assert len(next(row for row in part.rows if row.name == "Transformer").runs) == 3


def test_rates_are_in_order(results):
    keep(results, "Transformer", 0, np.ones(400), 1e-2, 3.0, "rates/0.00")
    assert list(evidence.collect(results, "encoding").parts[0].rates) == ["0.001", "0.003", "0.01"]


def test_rows_have_the_curve_of_their_first_seed(results):
    for row in evidence.collect(results, "encoding").parts[0].rows:
        entry = records.load(results / row.runs[0].record) if row.runs else None
        assert row.validation_curve == (
            [] if entry is None else [list(map(float, point)) for point in entry.record.validation]
        )
        assert not row.runs or row.validation_curve


def test_rates_are_those_that_were_tried(results):
    part = evidence.collect(results, "encoding").parts[0]
    assert part.rates == {"0.001": 2.0, "0.003": 1.5}
    assert part.facts["learning rate"].startswith("0.003 (the best of ")
    assert part.facts["changes to the preset"] == "dropout=0.2"


def test_the_rate_with_the_lowest_loss_of_the_weights_that_are_kept():
    first, second = (StudyRecord("t", "cpu", "p", "r", 0, "", new_record(rate, 2.0, 0)) for rate in (1e-3, 3e-3))
    second.record.validation = [[5, 1.0], [10, 2.5]]
    assert chosen_rate([first, second]) == 1e-3
    second.record.settings["training"]["keep"] = "best"
    assert chosen_rate([first, second]) == 3e-3
    second.record.status = "failed"
    assert chosen_rate([first, second]) == 1e-3
    first.record.status = "failed"
    assert chosen_rate([first, second]) is None


def test_records_hold_no_paths_of_the_machine(results):
    found = records.record_files(results.rglob("*"))
    assert len(found) == 7
    for path in found:
        text = lzma.decompress(path.read_bytes()).decode()
        assert "/home/me" not in text
        assert json.loads(text)["record"]["settings"]["data"]["source"] == "DATA/ag_news"


def test_only_paths_are_hidden(tmp_path):
    """A folder that is called as a word of the record must not change that word."""
    hidden = {"data": "DATA", "work": "WORK", "../sets/data": "DATA", "/home/me/data": "DATA"}
    value = {
        "data": {"sources": {"data/news": "network/x"}, "source": "data/a + data/b"},
        "note": "../sets/data/a: too long; /home/me/data/b, metadata/c, work",
    }
    assert without_folders(value, hidden) == {
        "data": {"sources": {"DATA/news": "network/x"}, "source": "DATA/a + DATA/b"},
        "note": "DATA/a: too long; DATA/b, metadata/c, work",
    }


def test_verdicts_compare_any_two_rows(results):
    """Factorized Random is right far more often than Linformer, which is not the baseline."""
    found = evidence.collect(results, "encoding")
    judged = {(one.part, "dot product" in one.claim): one for one in found.verdicts}
    assert len(judged) == len(found.verdicts) == 4
    first = judged["ag_news", False]
    assert (first.judgement, first.in_paper_holds) == ("one run", None)
    for key in ("syn-fr", "linformer"):
        share = np.load(results / f"records/encoding/cpu/ag_news/{key}-0.npz")["accuracy"].mean()
        assert f"{100 * share:.2f}" in first.because
    assert {one.judgement for place, one in judged.items() if place != ("ag_news", False)} == {"not run"}


def test_values_of_a_claim_are_of_the_seeds_that_both_have(results):
    keep(results, "Syn (FR)", 1, np.zeros(400, bool))
    found = evidence.collect(results, "encoding")
    first = next(one for one in found.verdicts if one.part == "ag_news" and "dot product" not in one.claim)
    assert "one seed" in first.because
    assert first.judgement == "one run"


def test_a_claim_rests_on_all_seeds_that_both_have(results):
    for name, right in (("Syn (FR)", 390), ("Linformer", 310)):
        keep(results, name, 1, np.arange(400) < right)
    found = evidence.collect(results, "encoding")
    first = next(one for one in found.verdicts if one.part == "ag_news" and "dot product" not in one.claim)
    assert first.runs == 2
    assert "Student's t, 2 seeds" in first.because


def test_seed_variance_is_pooled_over_the_rows_of_a_part(results):
    """Two rows that differ alike in both seeds have the variance of the others, whose seeds differ much."""
    for name, shares in (("Syn (FR)", (280, 290)), ("Linformer", (160, 170)), ("Syn (D)", (200, 330))):
        for seed, right in enumerate(shares):
            keep(results, name, seed, np.arange(400) < right)
    (results / "records/encoding/cpu/ag_news/transformer-2.json.xz").unlink()
    runs = evidence.by_row(evidence.load_all(results, "encoding"))
    found = evidence.collect(results, "encoding")
    pooled = seed_variance(runs, found.parts[0].rows, "accuracy")
    assert pooled is not None
    assert pooled.freedom == 3
    assert pooled.value > 50
    first = next(one for one in found.verdicts if one.part == "ag_news" and "dot product" not in one.claim)
    assert first.judgement == "undecided", "30 points, but the other seeds of the table are as far apart"


def test_curves_are_those_of_the_weights_that_would_be_kept(results):
    entry = records.load(place(results, "encoding", "cpu", "ag_news", "linformer-0"))
    entry.record.validation = [[5, 1.0], [10, 2.5], [15, 0.5]]
    assert evidence._curve([entry]) == [[5, 1.0], [10, 2.5], [15, 0.5]]
    entry.record.settings["training"]["keep"] = "best"
    assert evidence._curve([entry]) == [[5, 1.0], [10, 1.0], [15, 0.5]]


def test_rows_that_were_tuned_one_by_one_are_shown_together(tmp_path):
    """And each says which rate was chosen, from which."""
    draw = np.random.default_rng(0)
    for key, row, losses in (("transformer", "Transformer", (2.0, 1.5)), ("linformer", "Linformer", (1.0, 1.2))):
        part = f"ag_news-{key}"
        for seed, (name, loss) in enumerate([(f"{key}-0", min(losses)), (f"{key}-1", min(losses))]):
            keep(tmp_path, row, seed, draw.random(400) < 0.8, 3e-3, loss, part=part, file=name)
        for rate, loss in zip((1.5e-3, 3e-3), losses, strict=True):
            keep(tmp_path, row, 0, draw.random(400) < 0.8, rate, loss, f"rates/{rate:g}", part)
    found = evidence.collect(tmp_path, "encoding")
    shown = next(one for one in found.parts if one.name == "ag_news" and one.scale == "long")
    assert [row.name for row in shown.rows if row.runs] == ["Transformer", "Linformer"]
    assert shown.rows[1].scores["accuracy"].difference is not None
    assert shown.facts["learning rate"] == (
        "chosen for each row by its own validation loss: Linformer 0.0015 (0.0015: 1.000, 0.003: 1.200); "
        "Transformer 0.003 (0.0015: 2.000, 0.003: 1.500)"
    )


def test_a_rate_that_was_chosen_for_the_baseline_alone_is_said_to_be(results):
    assert "chosen for Transformer alone" in evidence.collect(results, "encoding").parts[0].facts["learning rate"]


def test_a_record_from_elsewhere_shows_up(results):
    before = evidence.collect(results, "encoding")
    source = place(results, "encoding", "cpu", "ag_news", "linformer-0")
    theirs = records.load(source)
    dropped = dataclasses.replace(theirs, scale="paper", row="Syn (FR)")
    path = place(results, "encoding", "paper", "ag_news", "from-a-friend")
    dropped.save(path, {})
    shutil.copyfile(records.rows_file(source), records.rows_file(path))
    after = evidence.collect(results, "encoding")
    assert [(part.scale, part.name) for part in before.parts] == [("cpu", "ag_news"), ("cpu", "imdb")]
    assert [(part.scale, part.name) for part in after.parts[2:]] == [("paper", "ag_news"), ("paper", "imdb")]
    row = next(row for row in after.parts[2].rows if row.name == "Syn (FR)")
    assert row.scores["accuracy"].value == before.parts[0].rows[1].scores["accuracy"].value
    assert row.runs[0].record == "records/encoding/paper/ag_news/from-a-friend.json.xz"


def test_records_that_do_not_count_are_named(results):
    entry = records.load(place(results, "encoding", "cpu", "ag_news", "linformer-0"))
    entry.save(place(results, "encoding", "cpu", "ag_news", "zz-again"), {})
    dataclasses.replace(entry, row="Performer").save(place(results, "encoding", "cpu", "ag_news", "performer-0"), {})
    found = evidence.collect(results, "encoding")
    assert any("zz-again.json.xz is left out: there is another run" in note for note in found.notes)
    assert any("performer-0.json.xz is in no table: there is no row 'Performer'" in note for note in found.notes)


def test_a_run_that_was_done_counts_more_than_one_that_failed(results):
    entry = records.load(place(results, "encoding", "cpu", "ag_news", "linformer-0"))
    failed = dataclasses.replace(entry, record=dataclasses.replace(entry.record, status="failed", reason="no memory"))
    failed.save(place(results, "encoding", "cpu", "ag_news", "a-failure"), {})
    part = evidence.collect(results, "encoding").parts[0]
    assert next(row for row in part.rows if row.name == "Linformer").status == "done"


def test_other_examples_are_not_compared(results):
    path = place(results, "encoding", "cpu", "ag_news", "linformer-0")
    entry = records.load(path)
    entry.record.data["sources"] = {"DATA/ag_news": "another fingerprint"}
    entry.save(path, {})
    part = evidence.collect(results, "encoding").parts[0]
    assert next(row for row in part.rows if row.name == "Linformer").scores["accuracy"].difference is None


def test_a_record_without_rows_has_its_score_and_no_test(results):
    records.rows_file(place(results, "encoding", "cpu", "ag_news", "linformer-0")).unlink()
    part = evidence.collect(results, "encoding").parts[0]
    score = next(row for row in part.rows if row.name == "Linformer").scores["accuracy"]
    assert score.difference is None
    assert (score.low, score.value, score.high) == pytest.approx((score.value - 1, score.value, score.value + 1))


@pytest.mark.parametrize(
    "damage", [b"", b"{", *map(lzma.compress, (b"{", b"[]", b'{"table": "encoding"}')), lzma.compress(b" " * 2000)[:40]]
)
def test_a_damaged_record_is_named(results, damage):
    path = place(results, "encoding", "cpu", "ag_news", "linformer-0")
    path.write_bytes(damage)
    with pytest.raises(ValueError, match=r"linformer-0\.json\.xz is no record of a study; delete it"):
        evidence.collect(results, "encoding")


def test_a_record_that_would_fill_the_memory_is_refused(results, monkeypatch):
    monkeypatch.setattr(saved_file, "LONGEST", 100)
    with pytest.raises(ValueError, match=r"is longer than 100 bytes after decompression"):
        evidence.collect(results, "encoding")


def test_a_record_that_is_not_compressed_counts_too(results):
    """Its rows are in a folder of the same name, as those of a comparison are."""
    before = evidence.collect(results, "encoding").parts[0]
    path = place(results, "encoding", "cpu", "ag_news", "linformer-0")
    plain = path.with_name("linformer-0.json")
    records.load(path).save(plain, {})
    records.rows_file(plain).parent.mkdir()
    records.rows_file(path).rename(records.rows_file(plain))
    path.unlink()
    after = evidence.collect(results, "encoding").parts[0]
    assert [row.scores for row in after.rows] == [row.scores for row in before.rows]


def test_rows_are_kept_exactly_and_the_same_rows_make_the_same_file(tmp_path):
    rows = {"accuracy": np.random.default_rng(0).random((40, 1)), "chrf": np.arange(12.0).reshape(6, 2)}
    (tmp_path / "run").mkdir()
    np.savez(tmp_path / "run" / "rows.npz", **rows)  # pyright: ignore[reportArgumentType]
    kept = [tmp_path / name / "a.json.xz" for name in ("one", "two")]
    for path in kept:
        records.copy_rows(tmp_path / "run", path)
    found = read_rows(records.rows_file(kept[0]))
    assert {name: one.tobytes() for name, one in found.items()} == {name: one.tobytes() for name, one in rows.items()}
    assert len({records.rows_file(path).read_bytes() for path in kept}) == 1
    with pytest.raises(ValueError, match=r"rows\.npz is missing; delete the record of this run, and it is made again"):
        records.copy_rows(tmp_path, kept[0])
