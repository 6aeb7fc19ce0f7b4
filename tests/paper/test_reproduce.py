"""``reproduce`` at its smallest scale: every table from training to page, and again from its records alone."""

import dataclasses
import lzma
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from synthattn.cli import reproduce as verb
from synthattn.compare import execution as execution_module
from synthattn.compare import records
from synthattn.compare.plan import ONE_ANSWER, PlannedRun, plan
from synthattn.compare.results import Speed
from synthattn.paper import evidence, outcome, recipes
from synthattn.paper.cost import costs
from synthattn.paper.recipes import TABLES, UNIGRAM, recipe
from synthattn.paper.runs import Folders, execution
from synthattn.training import record
from synthattn.training import run as run_module
from synthattn.training.progress import Display
from synthattn.training.settings import as_dict

# A run that fails leaves the file of its curves to the garbage collector.
pytestmark = [
    pytest.mark.unchecked,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

ROWS = {
    "translation": "Transformer (Control),random",
    "lm1b": "fixed_random",
    "generation": "Syn (D)",
    "c4": "Dynamic Conv,Universal Transformer,syn-r",
    "glue": "syn-r",
    "superglue": "random",
    "encoding": "linformer,syn-fr",
    "lra": "linformer",
}
"""A few of each table beside its baseline, of all kinds that there are."""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Everything is made once, in the order of the tables: some start from the models of others."""
    folder = tmp_path_factory.mktemp("reproduce")
    patch = pytest.MonkeyPatch()
    patch.setenv("SYNTHATTN_CACHE", str(folder / "cache"))
    patch.setenv("SYNTHATTN_TRACEBACK", "1")
    patch.setattr(evidence, "DRAWS", 50)
    patch.setattr(evidence, "FEW_DRAWS", 20)
    patch.setattr(recipes, "SPEED_ROUNDS", 3)
    for table in TABLES:
        assert reproduce(folder, table, rows=ROWS.get(table)) == 0
    yield folder
    patch.undo()


def reproduce(
    folder: Path, table: str, rows: str | None = None, scale: str = "tiny", resume: bool = False, show: bool = False
) -> int:
    return verb.run(table, scale, None, rows, 1, folder / "out", folder / "work", resume, show, False, True)


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "records" not in path.relative_to(folder).parts
    }


@pytest.mark.parametrize("table", TABLES)
def test_every_table_runs(table, place):
    found = outcome.load(place / "out" / table)
    assert found.parts
    for part in found.parts:
        assert part.scale == "tiny"
        done = [row for row in part.rows if row.status == "done"]
        assert sum(bool(row.attention) for row in done) >= 2, [(row.name, row.status, row.reason) for row in part.rows]
        assert not [row.reason for row in part.rows if row.status == "failed"]
        for row in done:
            assert bool(row.parameters) == bool(row.attention)
            assert row.scores, row.name
            assert (row.name == part.baseline) == all(score.difference is None for score in row.scores.values())
            for run in row.runs:
                entry = records.load(place / "out" / run.record)
                assert (entry.row, entry.record.status) == (row.name, "done")
    text = (place / "out" / table / "page.html").read_text()
    assert found.title in text


def test_pages_are_made_again_byte_for_byte(place, tmp_path):
    """From the records alone: the data, the models and the pages themselves are gone."""
    assert reproduce(place, "all", show=True) == 0
    shutil.copytree(place / "out" / "records", tmp_path / "out" / "records")
    assert reproduce(tmp_path, "all", show=True) == 0
    before, after = files(place / "out"), files(tmp_path / "out")
    assert list(before) == list(after)
    assert {"README.md", "table1/table.md", "analysis/page.html", "c4/results.json"} <= set(before)
    for name in before:
        assert before[name] == after[name], name


def test_nothing_is_trained_again(place, monkeypatch):
    monkeypatch.setattr(execution_module, "train", None)
    assert reproduce(place, "translation", rows=ROWS["translation"]) == 0


def test_what_is_there_is_not_mixed_with_new_runs_unasked(place):
    with pytest.raises(ValueError, match=r"runs of lm1b are in .* already; go on with --resume"):
        reproduce(place, "lm1b", rows="random")


def test_the_best_rate_is_taken_for_all(place):
    chosen = recipe("translation", "tiny")
    maker = execution(chosen, Folders(place / "out", place / "work"), lambda name: Display())
    part = chosen.parts[0]
    tried = {
        rate: records.load(maker.places.record(PlannedRun(chosen, part, part.baseline, 0, rate))) for rate in part.rates
    }
    best = min(tried, key=lambda rate: tried[rate].record.validation[-1][1])
    assert maker.rate(part) == best
    for key in ("transformer-0", "transformer-control-0", "random-0"):
        entry = records.load(evidence.place(place / "out", "translation", "tiny", "en-de", key))
        assert entry.rate == best
        assert not entry.candidate
    # The baseline's first run is the one that was chosen, and not made again.
    baseline = records.load(evidence.place(place / "out", "translation", "tiny", "en-de", "transformer-0"))
    assert baseline.record == tried[best].record
    assert not (place / "work" / "translation-tiny" / "en-de" / "transformer-0").exists()


@pytest.mark.parametrize("table", ["glue", "superglue", "encoding", "lra"])
def test_one_answer_for_all_is_scored_on_the_same_examples(table, place):
    """So that models can be compared with it; it came along although other rows were asked for."""
    found = {entry.row: entry for entry in evidence.load_all(place / "out", table) if not entry.candidate}
    one = found.pop(ONE_ANSWER.name)
    assert one.record.model == {}
    assert found
    for entry in found.values():
        assert {name: len(rows) for name, rows in entry.rows.items()} == {
            name: len(rows) for name, rows in one.rows.items()
        }
    shown = evidence.collect(place / "out", table).parts[0]
    row = next(row for row in shown.rows if row.name == ONE_ANSWER.name)
    main = row.scores[next(iter(shown.metrics))]
    assert main.difference is not None
    assert (row.parameters, row.status, shown.facts["steps"]) == (None, "done", str(found.popitem()[1].record.steps))


def test_the_control_is_as_large_as_the_largest(place):
    part = outcome.load(place / "out" / "translation").parts[0]
    size = {row.name: float(row.parameters or 0) for row in part.rows}
    found = {one.row: one for one in costs(recipe("translation", "tiny"))}
    largest = max(one.parameters for one in found.values() if one.row != "Transformer (Control)")
    assert largest > 1.02 * size["Transformer"]
    # The estimate has the size of the vocabulary that was asked for.
    words = size["Transformer"] - found["Transformer"].parameters
    assert size["Transformer (Control)"] == pytest.approx(largest + words, rel=0.01)


def test_a_suite_starts_from_the_models_of_c4(place):
    entry = records.load(evidence.place(place / "out", "glue", "tiny", "tuning", "syn-r-0"))
    start = entry.record.settings["model"]["start"]
    assert start == "WORK/c4-tiny/spans/syn-r-0/model"
    before = records.load(evidence.place(place / "out", "c4", "tiny", "spans", "syn-r-0"))
    assert entry.record.model["parameters"] == before.record.model["parameters"]


def test_a_suite_says_what_it_starts_from(tmp_path):
    with pytest.raises(ValueError, match=r"glue starts from the models of c4; first run: synthattn reproduce c4 "):
        reproduce(tmp_path, "glue", rows="syn-r")


def test_speed_and_weights_are_looked_at(place):
    part = outcome.load(place / "out" / "c4").parts[0]
    rows = {row.name: row for row in part.rows}
    assert rows["Transformer"].speed == Speed(1.0, 1.0, 1.0)
    speed = rows["Syn (R)"].speed
    assert speed is not None
    assert speed.low <= speed.value <= speed.high
    found = outcome.load(place / "out" / "analysis")
    assert [part.name for part in found.parts] == ["translation en-de", "lm1b news", "c4 spans"]
    looked = {row.name: row.look for row in found.parts[-1].rows}
    for name in ("Transformer", "Syn (R)"):
        look = looked[name]
        assert look is not None
        assert len(look.before) == len(look.after) > 0
        assert look.before != look.after
        assert rows[name].look is None, "weights are on the page of analysis alone"


def test_records_hold_no_paths_of_the_machine(place):
    found = records.record_files((place / "out").rglob("*"))
    assert found
    for path in found:
        text = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
        assert str(place) not in text.decode(), path


def test_a_stopped_run_goes_on(tmp_path, monkeypatch):
    monkeypatch.setenv("SYNTHATTN_CACHE", str(tmp_path / "cache"))
    real, calls = run_module.evaluate, []

    def stopping(*args, **kwargs):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    monkeypatch.setattr(run_module, "evaluate", stopping)
    assert reproduce(tmp_path, "lm1b", rows="random") == 130
    kept = [path.name for path in (tmp_path / "out" / "records").rglob("*.xz")]
    assert kept == ["0.001.json.xz"]
    monkeypatch.setattr(run_module, "evaluate", real)
    with pytest.raises(ValueError, match="--resume"):
        reproduce(tmp_path, "lm1b", rows="random")
    assert reproduce(tmp_path, "lm1b", rows="random", resume=True) == 0
    part = outcome.load(tmp_path / "out" / "lm1b").parts[0]
    assert [row.name for row in part.rows if row.status == "done"] == ["Transformer", "Random"]


def test_a_row_that_fails_does_not_take_the_others_down(tmp_path, monkeypatch):
    monkeypatch.setenv("SYNTHATTN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SYNTHATTN_TRACEBACK", raising=False)
    real = execution_module.train

    def failing(settings, *args, **kwargs):
        if settings.model.attention != "fixed_random":
            return real(settings, *args, **kwargs)
        with monkeypatch.context() as patch:
            patch.setattr(run_module._Run, "fit", lambda *args: 1 / 0)
            return real(settings, *args, **kwargs)

    monkeypatch.setattr(execution_module, "train", failing)
    assert reproduce(tmp_path, "lm1b", rows="fixed_random,random") == 0
    rows = {row.name: row for row in outcome.load(tmp_path / "out" / "lm1b").parts[0].rows}
    assert (rows["Fixed Random"].status, rows["Fixed Random"].reason) == ("failed", "division by zero")
    assert rows["Random"].status == "done"
    # What failed is tried again.
    monkeypatch.setattr(execution_module, "train", real)
    assert reproduce(tmp_path, "lm1b", rows="fixed_random,random", resume=True) == 0
    rows = {row.name: row for row in outcome.load(tmp_path / "out" / "lm1b").parts[0].rows}
    assert rows["Fixed Random"].status == "done"


def test_a_learning_rate_that_fails_is_not_taken(tmp_path, monkeypatch):
    monkeypatch.setenv("SYNTHATTN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SYNTHATTN_TRACEBACK", raising=False)
    real = execution_module.train

    def failing(settings, *args, **kwargs):
        if settings.training.learning_rate < 2e-3:
            return real(settings, *args, **kwargs)
        with monkeypatch.context() as patch:
            patch.setattr(run_module._Run, "fit", lambda *args: 1 / 0)
            return real(settings, *args, **kwargs)

    monkeypatch.setattr(execution_module, "train", failing)
    assert reproduce(tmp_path, "lm1b", rows="random") == 0
    part = outcome.load(tmp_path / "out" / "lm1b").parts[0]
    assert list(part.rates) == ["0.001"]
    assert [row.name for row in part.rows if row.status == "done"] == ["Transformer", "Random"]
    # Nor is it tried again.
    monkeypatch.setattr(execution_module, "train", None)
    assert reproduce(tmp_path, "lm1b", rows="random") == 0


def test_a_recipe_that_has_changed_is_not_mixed_with_old_runs(place, monkeypatch):
    """Neither with finished runs nor with one that was stopped."""
    real = recipes.Maker.training
    monkeypatch.setattr(
        recipes.Maker, "training", lambda *args, **fields: dataclasses.replace(real(*args, **fields), steps=5)
    )
    with pytest.raises(ValueError, match=r"0\.001\.json\.xz was made with training\.steps=4, now it is 5"):
        reproduce(place, "lm1b", rows="random", resume=True)


def test_data_that_has_changed_is_not_mixed_with_old_runs(place, monkeypatch):
    chosen = recipe("lm1b", "tiny")
    maker = execution(chosen, Folders(place / "out", place / "work"), lambda name: Display())
    part = chosen.parts[0]
    prepared = maker.prepared(part, part.settings)
    maker.check_data(part, prepared.facts)
    monkeypatch.setitem(prepared.facts["sources"], next(iter(prepared.facts["sources"])), "another fingerprint")
    with pytest.raises(ValueError, match=r"has changed since .* was made"):
        maker.check_data(part, prepared.facts)


def test_other_tokens_of_the_same_data_are_not_mixed_with_old_runs(place, monkeypatch):
    """Another release of the tokenizer's library makes other tokens, whose perplexities do not compare."""
    chosen = recipe("lm1b", "tiny")
    maker = execution(chosen, Folders(place / "out", place / "work"), lambda name: Display())
    part = chosen.parts[0]
    facts = maker.prepared(part, part.settings).facts
    (counts,) = facts["train"]
    tokens = counts["tokens"]
    maker.check_data(part, facts | {"tokenizer": "written down in another way"})
    monkeypatch.setitem(counts, "tokens", tokens + 1)
    with pytest.raises(
        ValueError, match=rf"has {tokens + 1:,} tokens, not {tokens:,} as when \S*\.json\.xz was made: another"
    ):
        maker.check_data(part, facts)


def test_a_run_that_was_stopped_does_not_go_on_with_other_data(tmp_path, monkeypatch):
    monkeypatch.setenv("SYNTHATTN_CACHE", str(tmp_path / "cache"))
    maker = execution(recipe("lra", "tiny"), Folders(tmp_path / "out", tmp_path / "work"), lambda name: Display())
    part = maker.study.parts[0]
    job = PlannedRun(maker.study, part, part.baseline, 0, part.rates[0])
    settings, folder = maker.settings(job), maker.places.run(job)
    folder.mkdir(parents=True)
    facts = maker.prepared(part, settings).facts
    other = facts | {"sources": dict.fromkeys(facts["sources"], "another fingerprint")}
    record.RunRecord(status="stopped", settings=as_dict(settings), data=other).save(folder)
    with pytest.raises(ValueError, match=f"has changed since {folder} was begun; name another --output and --work"):
        maker.run(job)


def test_the_floor_of_language_models_is_scored_on_the_same_texts(tmp_path, monkeypatch):
    monkeypatch.setenv("SYNTHATTN_CACHE", str(tmp_path / "cache"))
    tiny = recipe("lm1b", "tiny")
    rows = (tiny.parts[0].rows[0], UNIGRAM)
    chosen = dataclasses.replace(tiny, parts=(dataclasses.replace(tiny.parts[0], rows=rows, rates=()),))
    maker = execution(chosen, Folders(tmp_path / "out", tmp_path / "work"), lambda name: Display())
    runs = list(plan(chosen))
    for run in runs:
        maker.run(run)
    model, floor = (maker.load(run) for run in runs)
    assert model is not None
    assert floor is not None
    assert floor.rows["token-perplexity"].shape == model.rows["token-perplexity"].shape
    assert (floor.rows["token-perplexity"][:, 1:] == model.rows["token-perplexity"][:, 1:]).all(), (
        "tokens, words, bytes"
    )
    vocabulary = len(maker.prepared(chosen.parts[0], chosen.parts[0].settings).tokenizer)
    assert 1 < floor.record.scores["token-perplexity"]["value"] < vocabulary, "better than the uniform model"
    scales: tuple[recipes.Scale, ...] = ("cpu", "long")
    assert all(recipe(table, scale).parts[0].rows[-1] == UNIGRAM for scale in scales for table in ("lm1b", "c4"))


def test_vectors_of_words_are_made_before_they_are_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("SYNTHATTN_CACHE", str(tmp_path / "cache"))
    chosen = recipe("generation", "tiny")
    maker = execution(chosen, Folders(tmp_path / "out", tmp_path / "work"), lambda name: Display())
    part = next(part for part in chosen.parts if part.vectors)
    settings = maker.settings(PlannedRun(chosen, part, part.baseline, 0, rate=1e-3))
    assert Path(str(settings.evaluation.vectors)).is_file()


def test_only_the_first_process_writes(place, tmp_path, monkeypatch):
    shutil.copytree(place / "out" / "records", tmp_path / "out" / "records")
    monkeypatch.setattr(verb, "MAIN", False)
    assert reproduce(tmp_path, "all", show=True) == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["records"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"table": "translations"}, "there is no table 'translations'; did you mean translation?"),
        ({"scale": "gpu"}, "there is no scale 'gpu', only tiny, cpu, long, paper"),
        ({"rows": "randon"}, "translation has no row 'randon'; did you mean random or "),
        ({"seeds": 0}, "--seeds must be at least 1, got 0"),
        ({"scale": "cpu"}, "--scale cpu needs --data: a folder with a folder for each data set"),
        ({"scale": "cpu", "data": Path("nowhere")}, "there is no folder nowhere"),
    ],
)
def test_bad_input(change, message, tmp_path):
    options: dict[str, Any] = {"table": "translation", "scale": "tiny", "data": None, "rows": None, "seeds": None}
    options |= {"output": tmp_path / "out", "work": tmp_path / "work", "resume": False, "only_show": False}
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        verb.run(**options | change, estimate=False, quiet=True)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_a_data_set_that_is_missing_is_named(tmp_path):
    with pytest.raises(ValueError, match="c4 needs the data set wikitext2, there is no folder"):
        verb.run("c4", "cpu", tmp_path, None, None, tmp_path / "o", tmp_path / "w", False, False, False, True)


def test_rows_that_only_some_tables_have(place):
    assert reproduce(place, "all", rows="linformer", resume=True) == 0
    with pytest.raises(ValueError, match="no table has a row performer"):
        reproduce(place, "all", rows="performer")


def test_there_is_nothing_to_show(tmp_path):
    with pytest.raises(ValueError, match="there are no records of lm1b in "):
        reproduce(tmp_path, "lm1b", show=True)


def test_estimates_train_nothing(tmp_path, capsys):
    code = verb.run("translation", "paper", None, None, None, tmp_path / "o", tmp_path / "w", False, False, True, False)
    assert code == 0
    said = capsys.readouterr().out
    assert "device-hours" in said
    assert "(Control)" in said
    assert not (tmp_path / "o").exists()


def test_the_command_of_a_record_asks_for_that_run(place):
    for path in (place / "out" / "records" / "encoding").rglob("*.xz"):
        entry = records.load(path)
        words = entry.command.split()
        assert words[:5] == ["synthattn", "reproduce", "encoding", "--scale", "tiny"]
        chosen = recipe("encoding", "tiny")
        asked = [words[words.index("--rows") + 1]]
        found = list(plan(chosen, asked, int(words[words.index("--seeds") + 1])))
        assert any((job.row.name, job.seed) == (entry.row, entry.seed) for job in found)
