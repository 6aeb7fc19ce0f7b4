"""``compare`` from data to report, at the smallest scale at which everything happens."""

import csv
import io
import json
import random
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from synthattn.bench.two_models import measure
from synthattn.cli import command
from synthattn.cli import compare as verb
from synthattn.compare import execution, executors, statistics
from synthattn.compare import results as report
from synthattn.compare.compare import compare, hardware_of
from synthattn.compare.comparison import CONTROL, Comparison, load_comparison
from synthattn.compare.plan import slug
from synthattn.compare.records import StudyRecord
from synthattn.data.tokenizers import load_tokenizer
from synthattn.synthesizers import FAMILY
from synthattn.tasks import find_task
from synthattn.training import record
from synthattn.training.evaluation import load_rows
from synthattn.training.model import load
from synthattn.training.progress import Display
from synthattn.training.run import Stopped, train
from synthattn.training.settings import Settings, from_dict
from synthattn.training.trainer import SynthesizerTrainer

# A run that fails leaves the file of its curves to the garbage collector.
pytestmark = [
    pytest.mark.unchecked,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

WORDS = ["red", "blue", "old", "new", "small", "large", "house", "tree", "car", "dog", "cat", "sees", "has", "the"]


def sentences(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choice(WORDS) for _ in range(rng.randint(3, 9))) for _ in range(count)]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Small files for three tasks, and a cache of their own."""
    folder = tmp_path_factory.mktemp("data")
    for split, count, seed in (("train", 60, 0), ("valid", 5, 1), ("test", 7, 2)):
        found = sentences(count, seed)
        for name in ("pairs", "texts", "classes"):
            (folder / name).mkdir(exist_ok=True)
        (folder / "pairs" / f"{split}.en").write_text("".join(f"{one}\n" for one in found))
        reverse = (" ".join(reversed(one.split())) for one in found)
        (folder / "pairs" / f"{split}.de").write_text("".join(f"{one}\n" for one in reverse))
        (folder / "texts" / f"{split}.txt").write_text("".join(f"{one}\n" for one in found))
        labelled = "".join(f"{one}\t{'animal' if 'dog' in one else 'thing'}\n" for one in found)
        (folder / "classes" / f"{split}.tsv").write_text("text\tlabel\n" + labelled)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SYNTHATTN_CACHE", str(folder / "cache"))
        # Real measuring takes turns for seconds; what it does has tests of its own.
        patch.setattr(execution, "measure", lambda *rest: measure(*rest[:3], rounds=1, new_tokens=2))
        patch.setattr(executors, "cores", lambda: 1)
        yield folder


def tiny(source: Path, task: str, **training: Any) -> Settings:
    often = {"log_every": 1, "evaluate_every": 4, "save_every": 4, "evaluate_tokens": 50}
    chosen = {"steps": 4, "batch_tokens": 128, "warmup": 1} | often | training
    return from_dict(
        {
            "data": {"source": str(source), "task": task, "tokenizer": "words", "vocab_size": 130},
            "model": {"preset": "tiny", "encoder_layers": 1, "decoder_layers": 1},
            "training": chosen,
            "evaluation": {"max_new_tokens": 5},
        }
    )


@pytest.fixture(scope="module")
def family(data, tmp_path_factory):
    """The paper's family on a translation, with what every step of every run has seen."""
    folder = tmp_path_factory.mktemp("family") / "new"
    steps: list[tuple[Any, bytes]] = []
    first: list[dict[str, torch.Tensor]] = []
    original = SynthesizerTrainer.training_step

    def watched(self: Any, model: Any, inputs: Any, *rest: Any) -> Any:
        if self.state.global_step == 0:
            first.append({name: value.detach().clone() for name, value in model.named_parameters()})
        steps.append((self.state.global_step, inputs["input_ids"].numpy().tobytes()))
        return original(self, model, inputs, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SynthesizerTrainer, "training_step", watched)
        results = compare(Comparison(tiny(data / "pairs", "translation")), folder, command="synthattn compare ...")
    return results, folder, steps, first


def runs(folder: Path) -> dict[str, record.RunRecord]:
    return {run.name: record.load(run) for run in sorted((folder / "runs").iterdir()) if run.is_dir()}


def test_all_of_the_family_is_done(family):
    results, folder, *_ = family
    assert [variant.attention for variant in results.models] == list(FAMILY)
    assert {variant.status for variant in results.models} == {"done"}
    assert results.main_metric == "bleu"
    assert set(results.metrics) == {"bleu", "tokenized-bleu", "chrf"}
    assert list(runs(folder)) == sorted(f"{slug(attention)}-0" for attention in FAMILY)


def test_conditions_are_equal(family):
    _, folder, steps, _ = family
    found = list(runs(folder).values())
    for what in ("data", "tokens", "epochs", "steps", "seed", "notes"):
        assert all(getattr(one, what) == getattr(found[0], what) for one in found), what
    assert found[0].tokens > 0
    changed = [{**one.settings, "model": one.settings["model"] | {"attention": ""}} for one in found]
    assert all(one == changed[0] for one in changed)
    assert [step for step, _ in steps] == [0, 1, 2, 3] * len(FAMILY)
    batches = [batch for _, batch in steps]
    assert batches == batches[:4] * len(FAMILY)
    assert len(set(batches[:4])) == 4


def test_what_models_share_starts_alike(family):
    *_, first = family
    assert len(first) == len(FAMILY)
    shared = set.intersection(*(set(one) for one in first))
    assert {"model.embedding.weight", "model.encoder.blocks.0.attention.value.weight"} <= shared
    for name in shared:
        assert all(torch.equal(one[name], first[0][name]) for one in first), name
    # A term of a mixture starts as it does alone.
    by_attention = dict(zip(FAMILY, first, strict=True))
    queries = {name for name in by_attention["vanilla"] if name not in shared}
    assert len(queries) >= 4
    values = {value.sum().item() for value in by_attention["random+vanilla"].values()}
    assert all(by_attention["vanilla"][name].sum().item() in values for name in queries)


def test_files_of_a_comparison(family):
    results, folder, *_ = family
    assert {entry.name for entry in folder.iterdir()} == {
        "compare.yaml", "results.json", "report.html", "answer.md", "table.md", "table.csv", "picture.svg", "runs"
    }  # fmt: skip
    assert report.load(folder / "results.json") == results
    page = (folder / "report.html").read_text()
    assert all(attention in page for attention in FAMILY)
    assert all(f"| `{attention}`" in (folder / "table.md").read_text() for attention in FAMILY)
    assert (folder / "picture.svg").read_text().startswith("<svg")
    assert load_comparison(folder).attention == FAMILY


def test_the_table_has_the_numbers_of_the_records(family):
    results, folder, *_ = family
    found = runs(folder)
    for row in csv.DictReader(io.StringIO((folder / "table.csv").read_text())):
        assert row["status"] == "done"
        if row["attention"] == "source copied":  # the floor
            assert not row["parameters"]
            continue
        own = found[f"{slug(row['attention'])}-0"]
        assert int(row["parameters"]) == own.model["parameters"]
        assert float(row["chrf"]) == pytest.approx(own.scores["chrf"]["value"])
        assert float(row["training_speed"]) > 0
    assert results.facts["training"] == "4 steps"
    assert results.facts["precision"] == "fp32"  # chosen on the CPU
    assert results.command == "synthattn compare ..."


def test_files_of_a_run(family):
    _, folder, *_ = family
    run = folder / "runs" / "random+vanilla-0"
    assert {entry.name for entry in run.iterdir()} == {
        "settings.yaml", "record.json", "model", "predictions.jsonl", "rows.npz", "tensorboard"
    }  # fmt: skip
    for attention in FAMILY:
        model = load(folder / "runs" / f"{slug(attention)}-0" / "model")
        assert str(model.config.encoder_attention) == attention
        assert len(load_tokenizer(folder / "runs" / f"{slug(attention)}-0" / "model")) == model.config.vocab_size


def test_answers_stand_side_by_side(family):
    results, folder, *_ = family
    predictions = [json.loads(line) for line in (folder / "runs/dense-0/predictions.jsonl").read_text().splitlines()]
    assert [sample.source for sample in results.samples] == [one["source"] for one in predictions]
    assert [sample.reference for sample in results.samples] == [one["reference"] for one in predictions]
    for variant in results.models:
        assert len(variant.samples) == len(results.samples) == 7
    (dense,) = [variant for variant in results.models if variant.attention == "dense"]
    assert dense.samples == [one["prediction"] for one in predictions]


def test_costs_and_pictures(family):
    results, *_ = family
    for variant in results.models:
        assert None not in (variant.training_speed, variant.inference_speed, variant.generation_speed)
        assert variant.training_memory > 0
        keeps_keys = "vanilla" in variant.attention
        assert variant.cache_bytes_per_token == (256 if keeps_keys else 128)
        assert variant.heads
        assert variant.histograms
        assert bool(variant.mixture) == ("+" in variant.attention)
        assert [step for step, _ in variant.loss_curve] == [1, 2, 3, 4]
    assert (results.models[0].training_speed, results.models[0].generation_speed) == (1.0, 1.0)


@pytest.mark.parametrize("width", [50, 80, 100, 140])
def test_the_table_in_a_terminal(family, width):
    results, folder, *_ = family
    shown = io.StringIO()
    verb.show(results, folder, Console(file=shown, width=width))
    text = shown.getvalue()
    lead, table = text.split("\n\n", 1)
    table = table.split("\n- ")[0]
    assert max(len(line.rstrip()) for line in table.splitlines()) <= width
    for attention in FAMILY:
        assert re.search(rf"^ ?{re.escape(attention)}( |$)", table, re.MULTILINE), "names are not broken"
    assert "p = " in table or width < 140
    assert ("MB" in table) == (width >= 80)
    assert "…" not in table
    # Sentences have the words of the answer, in lines that fit.
    below = text.split(table, 1)[1].split("\nReport: ")[0]
    sentences = f"{lead}\n{below}"
    bullets = [*[[]] * 3, *[["-"]] * (len(results.answer) - 3)]
    said = [word for bullet, text in zip(bullets, results.answer, strict=True) for word in (*bullet, *text.split())]
    assert sentences.split() == said, "the headline first, and details below the table"
    assert max(map(len, sentences.splitlines())) <= min(width, 100)
    assert f"Report: {folder / 'report.html'}\n" in text, "not broken, to be copied"


def test_a_long_name_is_broken_after_a_plus(family):
    _, folder, *_ = family
    shown = io.StringIO()
    changed = report.load(folder / "results.json")
    changed.models[1].attention = "dense(window=15)+factorized_random(rank=16)"
    verb.show(changed, folder, Console(file=shown, width=80))
    assert re.search(r"^ dense\(window=15\)\+ +[0-9.]+ [Mk]? ", shown.getvalue(), re.MULTILINE)
    assert re.search(r"^ factorized_random\(rank=16\) *$", shown.getvalue(), re.MULTILINE)


def test_a_variant_that_fails_leaves_the_others(data, tmp_path):
    settings = tiny(data / "texts", "language-modeling")
    results = compare(Comparison(settings, ("vanilla", "linformer(k=7)", "random", "dense")), tmp_path / "new")
    assert [variant.status for variant in results.models] == ["done", "failed", "done", "done"]
    failed = results.models[1]
    assert "looks at all positions at once and cannot decode" in failed.reason
    assert "\n" not in failed.reason
    assert not failed.scores
    assert failed.reason in (tmp_path / "new" / "table.md").read_text()
    shown = io.StringIO()
    verb.show(results, tmp_path, Console(file=shown, width=80))
    assert "- linformer(k=7): failed: " in shown.getvalue()
    _check_scores(results, tmp_path / "new")


def _check_scores(results: report.Results, folder: Path) -> None:
    """Scores are those of the rows that the runs have kept, and tests are adjusted for how many there are."""
    metric = next(one for one in find_task("language-modeling").metrics() if one.name == "token-perplexity")
    rows = {name: load_rows(folder / "runs" / f"{name}-0")[metric.name] for name in ("vanilla", "random", "dense")}
    wanted = {name: statistics.score(metric, [rows[name]], [rows["vanilla"]]) for name in ("random", "dense")}
    unadjusted = [one.difference.p_value for one in wanted.values() if one.difference is not None]
    statistics.adjust([one.difference for one in wanted.values() if one.difference is not None])
    found = {variant.attention: variant.scores[metric.name] for variant in results.models if variant.scores}
    assert {name: found[name] for name in wanted} == wanted
    assert found["vanilla"].difference is None
    assert found["vanilla"].value == pytest.approx(metric.value(rows["vanilla"]))
    assert min(unadjusted) < 0.5, "or adjusting would change nothing"


def test_a_baseline_that_fails(data, tmp_path, monkeypatch):
    def failing(settings: Settings, run: Path, *rest: Any, **options: Any) -> Any:
        if settings.model.attention == "vanilla":
            raise RuntimeError("the machine\nhad enough")
        return train(settings, run, *rest, **options)

    monkeypatch.setattr(execution, "train", failing)
    results = compare(Comparison(tiny(data / "texts", "language-modeling"), ("vanilla", "random")), tmp_path / "new")
    assert [(variant.status, variant.reason) for variant in results.models] == [
        ("failed", "the machine had enough"),
        ("done", ""),
    ]
    assert results.answer[0].startswith("No answer yet: vanilla was not trained to the end")
    assert report.load(tmp_path / "new" / "results.json") == results


def test_a_variant_that_fails_with_one_of_its_seeds_is_not_judged_by_the_others(data, tmp_path, monkeypatch):
    def failing(settings: Settings, run: Path, *rest: Any, **options: Any) -> Any:
        if settings.model.attention == "random" and settings.training.seed == 1:
            raise RuntimeError("the loss is nan")
        return train(settings, run, *rest, **options)

    monkeypatch.setattr(execution, "train", failing)
    comparison = Comparison(tiny(data / "texts", "language-modeling"), ("vanilla", "random"), seeds=2)
    results = compare(comparison, tmp_path / "new")
    vanilla, random_one = results.models
    assert [(one.status, one.failed_seeds) for one in results.models] == [("done", 0), ("failed", 1)]
    assert len(vanilla.scores["token-perplexity"].by_seed) == 2
    assert {len(score.by_seed) for score in random_one.scores.values()} == {1}
    assert all(score.difference is None for score in random_one.scores.values())
    assert results.answer[-1] == "Failed, and not compared: random (in 1 of the 2 seeds that were tried)."
    value = f"{random_one.scores['token-perplexity'].value:.0f}"[:2]
    lines = (tmp_path / "new" / "table.md").read_text().splitlines()
    row, _ = (line for line in lines if line.startswith("| `random`"))
    assert value in row
    assert "(failed: the loss is nan)" in row
    assert "better" not in row
    assert "worse" not in row
    assert report.load(tmp_path / "new" / "results.json") == results


def test_seeds_that_are_not_the_same_are_not_compared(data, tmp_path):
    """While a comparison runs, the baseline is one seed ahead."""
    comparison = Comparison(tiny(data / "texts", "language-modeling"), ("vanilla", "random"), seeds=2)
    with pytest.raises(Stopped):
        compare(comparison, tmp_path / "new", lambda name: Stopping(2 if name == "random seed 1" else None))
    half = report.load(tmp_path / "new" / "results.json")
    assert [len(one.scores["token-perplexity"].by_seed) for one in half.models] == [2, 1]
    assert half.models[1].scores["token-perplexity"].difference is None
    assert any(
        text.startswith("Not judged, because these and vanilla have not learned the task: random (")
        for text in half.answer
    )


def test_a_loss_that_is_no_number(data, tmp_path):
    settings = tiny(data / "texts", "language-modeling", learning_rate=1e30)
    results = compare(Comparison(settings, ("vanilla",)), tmp_path / "new")
    assert results.models[0].status == "failed"
    assert "training.learning_rate (now 1e+30)" in results.models[0].reason
    assert results.answer == ["No answer yet: no model was trained to the end."]


class Stopping(Display):
    """Presses Ctrl-C."""

    def __init__(self, at: int | None) -> None:
        self.at = at

    def step(self, step: int, steps: int, facts: dict[str, str]) -> None:
        if step == self.at:
            signal.raise_signal(signal.SIGINT)


def test_stopped_and_resumed_with_two_seeds(data, tmp_path):
    """A comparison that is stopped in its third run of four ends as one that is not."""
    comparison = Comparison(tiny(data / "texts", "language-modeling"), ("vanilla", "random"), seeds=2)
    whole = compare(comparison, tmp_path / "whole")

    stopped, begun = tmp_path / "stopped", []

    def display(name: str) -> Stopping:
        begun.append(name)
        return Stopping(2 if name == "vanilla seed 1" else None)

    with pytest.raises(Stopped):
        compare(comparison, stopped, display, command="the first")
    assert begun == ["data", "plan", "all runs", "vanilla seed 0", "random seed 0", "vanilla seed 1"]
    half = report.load(stopped / "results.json")
    assert [variant.status for variant in half.models] == ["waiting", "waiting"]
    assert all(len(variant.scores["token-perplexity"].by_seed) == 1 for variant in half.models)
    assert record.load(stopped / "runs" / "vanilla-1").status == "stopped"
    before = {name: one.times for name, one in runs(stopped).items() if one.status == "done"}
    begun.clear()
    again = compare(
        load_comparison(stopped), stopped, lambda name: begun.append(name) or Display(), "the second", resume=True
    )
    assert begun == ["data", "plan", "all runs", "vanilla seed 1", "random seed 1", "speed"]
    assert {name: one.times for name, one in runs(stopped).items() if name in before} == before
    assert record.load(stopped / "runs" / "vanilla-1").times["starts"] == 2
    assert (again.command, again.started) == ("the first", half.started)
    for ours, theirs in zip(again.models, whole.models, strict=True):
        assert ours.status == "done"
        assert ours.scores == theirs.scores
        assert len(ours.scores["token-perplexity"].by_seed) == 2
        assert ours.loss_curve == theirs.loss_curve
    assert len({*whole.models[0].scores["token-perplexity"].by_seed}) == 2, "seeds differ"
    assert not any("one seed" in text for text in again.answer)
    begun.clear()
    third = compare(load_comparison(stopped), stopped, lambda name: begun.append(name) or Display(), resume=True)
    assert begun == ["data", "speed"]
    assert [variant.scores for variant in third.models] == [variant.scores for variant in whole.models]

    kept = stopped / "runs" / "random-0.json"
    kept.write_text("[]")
    (stopped / "results.json").write_text("[]")
    with pytest.raises(ValueError, match=r"random-0\.json is no record of a study; delete it, and its run is"):
        compare(load_comparison(stopped), stopped, resume=True)
    kept.unlink()
    fourth = compare(load_comparison(stopped), stopped, resume=True)
    assert [variant.scores for variant in fourth.models] == [variant.scores for variant in whole.models]
    (stopped / "runs" / "random-0" / "predictions.jsonl").write_text('{"source": 3}\n')
    with pytest.raises(
        ValueError, match=r"predictions\.jsonl is damaged: it lacks the field 'reference'; score the run"
    ):
        compare(load_comparison(stopped), stopped, resume=True)


def test_a_classification_with_a_control(data, tmp_path):
    settings = tiny(data / "classes", "classification")
    results = compare(Comparison(settings, ("vanilla", "random+dense"), control=True), tmp_path / "new")
    vanilla, largest, control = results.models
    assert control.attention == CONTROL
    assert {variant.status for variant in results.models} == {"done"}
    assert vanilla.parameters is not None
    assert largest.parameters is not None
    assert vanilla.parameters < largest.parameters
    assert control.parameters == pytest.approx(largest.parameters, rel=0.01)
    assert results.main_metric == "accuracy"
    (floor,) = (row for row in results.rows if not row.attention)
    assert (floor.name, set(floor.scores)) == ("best constant answer", {"accuracy", "macro-f1"})
    assert all(variant.generation_speed is None for variant in results.models)
    assert all(variant.cache_bytes_per_token is None for variant in results.models)
    assert {answer for variant in results.models for answer in variant.samples} <= {"animal", "thing"}
    model: Any = load(tmp_path / "new" / "runs" / "vanilla-control-0" / "model")
    assert set(model.config.id2label.values()) == {"animal", "thing"}
    shown = io.StringIO()
    verb.show(results, tmp_path, Console(file=shown, width=80))
    assert "score" in shown.getvalue(), "of a model that does not write, how fast it scores"
    assert "vanilla (control)" in shown.getvalue()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Comparison(attention=()), "nothing to compare: give at least one attention"),
        (lambda: Comparison(from_dict({"model": {"start": "x"}})), "a comparison trains every variant anew"),
        (lambda: Comparison(seeds=0), "seeds must be at least 1, got 0"),
        (lambda: Comparison(attention=("random", "random()")), r"random is given twice"),
        (lambda: Comparison(attention=("ramdom",)), "unknown attention 'ramdom'; did you mean random"),
    ],
)
def test_mistakes_are_found_before_anything_starts(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_folders(data, tmp_path):
    with pytest.raises(ValueError, match="is not empty; choose another folder, or go on with --resume"):
        compare(Comparison(tiny(data / "pairs", "translation")), data)
    missing = tiny(tmp_path / "nothing", "translation")
    with pytest.raises(ValueError, match="nothing"):
        compare(Comparison(missing), tmp_path / "new")
    assert not (tmp_path / "new").exists(), "a mistake leaves nothing in the way of the next try"
    with pytest.raises(ValueError, match=r"holds no compare\.yaml, so it is not the folder of a comparison"):
        load_comparison(tmp_path)
    (tmp_path / "compare.yaml").write_text("attention: [random]\n")
    with pytest.raises(ValueError, match=r"compare\.yaml is damaged"):
        load_comparison(tmp_path)


def test_the_hardware_is_that_of_the_runs():
    """On a cluster, that of this process would be the wrong one."""
    records = [
        StudyRecord("", "", "", "vanilla", n, "", record.RunRecord(hardware={"processor": name, "cores": "8"}))
        for n, name in enumerate(("EPYC", "Xeon", "EPYC"))
    ]
    assert hardware_of(records) == {"processor": "EPYC and Xeon", "cores": "8"}
    assert hardware_of([]) == {}


def test_specs_between_commas():
    assert command.split("vanilla, dense(window=15, bias=false),random") == [
        "vanilla",
        "dense(window=15, bias=false)",
        "random",
    ]
    assert command.split("") == []
