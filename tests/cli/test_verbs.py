"""``train``, ``evaluate`` and ``generate`` as commands, and what every verb says when something is wrong."""

import io
import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

from synthattn.bench.two_models import measure
from synthattn.cli.app import app, main
from synthattn.compare import execution, executors
from synthattn.data.holdout import HeldOut, content_hash
from synthattn.data.open import open_source
from synthattn.training import answering, record

pytestmark = pytest.mark.unchecked

WORDS = ["red", "blue", "old", "new", "small", "large", "house", "tree", "car", "dog", "cat", "sees", "has", "the"]
TINY = ["--preset", "tiny", "--vocab-size", "130", "--batch-tokens", "128", "--set", "data.tokenizer=words"]
TINY += ["--set", "training.warmup=1", "--set", "training.evaluate_tokens=50", "--quiet"]


class Said(NamedTuple):
    code: int
    out: str
    err: str


def call(*arguments: str | Path, stdin: str | bytes = "") -> Said:
    """The command in this process: importing everything anew would take longer than all that is tested."""
    out, err = io.StringIO(), io.StringIO()
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(stdin.encode() if isinstance(stdin, str) else stdin)
    with os.fdopen(reading) as source, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["synthattn", *map(str, arguments)])
        for name, stream in (("stdin", source), ("stdout", out), ("stderr", err)):
            patch.setattr(sys, name, stream)
        with pytest.raises(SystemExit) as end:
            main()
    code = end.value.code
    return Said(code if isinstance(code, int) else int(code is not None), out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with data and a run for each of three tasks: ``pairs``, ``texts`` and ``classes``."""
    folder = tmp_path_factory.mktemp("place")
    rng = random.Random(0)
    for split, count in (("train", 40), ("valid", 5), ("test", 7)):
        found = [" ".join(rng.choice(WORDS) for _ in range(rng.randint(3, 9))) for _ in range(count)]
        files = {
            f"pairs/{split}.en": found,
            f"pairs/{split}.de": [" ".join(reversed(one.split())) for one in found],
            f"texts/{split}.txt": found,
            f"classes/{split}.tsv": [
                "text\tlabel",
                *(f"{one}\t{'animal' if 'dog' in one else 'thing'}" for one in found),
            ],
        }
        for name, lines in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text("".join(f"{line}\n" for line in lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SYNTHATTN_CACHE", str(folder / "cache"))
        # Real measuring takes turns for seconds; what it does has tests of its own. Two threads would wait for each
        # other, at the cost of ten seconds of both, wherever something else runs.
        patch.setattr(execution, "measure", lambda *rest: measure(*rest[:3], rounds=1, new_tokens=2))
        patch.setattr(executors, "cores", lambda: 1)
        patch.chdir(folder)
        for task, name in (
            ("translation", "pairs"),
            ("language-modeling", "texts"),
            ("classification", "classes"),
        ):
            said = call(
                "train", "--task", task, "--data", name, "--steps", "3", "--output", f"run-{name}", *TINY,
                "--set", "evaluation.max_new_tokens=6", "--set", "training.learning_rate=0.01",
            )  # fmt: skip
            assert said.code == 0, said.err
        (folder / "empty").mkdir()
        (folder / "binary.txt").write_bytes(b"all \xff wrong\n")
        yield folder


def test_train_keeps_a_run(place):
    found = record.load(place / "run-pairs")
    assert (found.status, found.steps, found.seed) == ("done", 3, 0)
    assert found.command.startswith("synthattn train --task translation --data pairs --steps 3 --output run-pairs")
    assert list(found.scores) == ["bleu", "tokenized-bleu", "chrf"]
    again = call("train", "--resume", "run-pairs")
    assert again.code == 0
    assert "run-pairs is done already" in again.err
    assert "7 examples of test." in again.out
    assert "The model, weights of step 3, is in run-pairs/model." in again.out


@pytest.mark.parametrize("what", ["run-pairs", "run-pairs/model"])
def test_evaluate_a_run_or_its_model(place, what):
    """Both give the scores that training ended with."""
    said = call("evaluate", what, "--json", "--quiet")
    assert (said.code, said.err) == (0, "")
    found = json.loads(said.out)
    assert found["scores"] == record.load(place / "run-pairs").scores
    assert (found["splits"], found["examples"]) == ({"translation": "test"}, 7)


def test_evaluate_another_split_and_fewer_examples(place, tmp_path):
    said = call(
        "evaluate", "run-texts", "--split", "validation", "--limit", "3", "--output", tmp_path / "new", "--json"
    )
    found = json.loads(said.out)
    assert (found["splits"], found["examples"]) == ({"language-modeling": "validation"}, 3)
    assert json.loads((tmp_path / "new" / "scores.json").read_text())["facts"]["examples"] == 3
    assert (tmp_path / "new" / "rows.npz").is_file()


def test_evaluate_a_model_that_does_not_know_its_task(place, tmp_path):
    shutil.copytree("run-pairs/model", tmp_path / "model")
    said = call("evaluate", tmp_path / "model")
    assert said.code == 2
    assert said.err.endswith("does not say what it was trained for; give --task, and --data\n")
    said = call("evaluate", tmp_path / "model", "--task", "translation", "--data", "pairs", "--limit", "2")
    assert said.code == 0
    assert "2 examples of test." in said.out
    assert "tokenized-bleu" in said.out


def test_evaluate_a_checkpoint(place, monkeypatch):
    """The folder of an unfinished run stands for its last complete checkpoint."""
    from synthattn.training import run

    def full(*arguments: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(run, "evaluate", full)
        said = call(
            "train", "--task", "translation", "--data", "pairs", "--steps", "3", "--output", "half", *TINY,
            "--set", "training.log_every=1", "--set", "training.save_every=1",
        )  # fmt: skip
    assert (said.code, said.err) == (2, "synthattn: no space left\n")
    (place / "half" / "model").rename(place / "half" / "hidden")
    whole = json.loads(call("evaluate", "half", "--json", "--quiet").out)
    last = json.loads(call("evaluate", "half/checkpoint-3", "--json", "--quiet").out)
    earlier = call("evaluate", "half/checkpoint-2", "--json", "--quiet")
    assert whole == last
    assert earlier.code == 0
    written = call("generate", "half/checkpoint-3", "--max-new-tokens", "3", stdin="the dog\n")
    assert written.code == 0
    assert written.out.count("\n") == 1


def table(folder: Path, **splits: list[tuple[str, str]]) -> Path:
    """Labelled texts."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in splits.items():
        lines = ["text\tlabel", *("\t".join(row) for row in rows)]
        (folder / f"{name}.tsv").write_text("".join(f"{line}\n" for line in lines))
    return folder


def accuracy(*arguments: str | Path) -> tuple[float, int, list[str]]:
    said = call("evaluate", *arguments, "--json", "--quiet")
    assert (said.code, said.err) == (0, "")
    found = json.loads(said.out)
    return found["scores"]["accuracy"]["value"], found["examples"], list(found["splits"].values())


def test_classes_are_those_of_the_model(place, tmp_path):
    """Whatever classes other data has in its train split, and in which order."""
    said = [json.loads(line) for line in (place / "run-classes/predictions.jsonl").read_text().splitlines()]
    agreed = [(one["source"], one["prediction"]) for one in said]
    other = table(tmp_path / "other", train=[("dog", "thing"), ("cat", "zebra"), ("car", "aardvark")], test=agreed)
    assert accuracy("run-classes", "--data", other, "--output", tmp_path / "new") == (100.0, 7, ["test"])
    assert [json.loads(line) for line in (tmp_path / "new" / "predictions.jsonl").read_text().splitlines()] == [
        one | {"reference": one["prediction"]} for one in said
    ]
    table(other, test=[*agreed, ("cat", "zebra")])
    message = "synthattn: test.tsv, line 9: label 'zebra' does not occur in the labels of the model: animal, thing\n"
    assert call("evaluate", "run-classes/model", "--data", other) == Said(2, "", message)


def test_classes_of_a_model_that_does_not_name_them(place, tmp_path):
    """They are taken from the train split, if there is one with as many."""
    model = tmp_path / "model"
    shutil.copytree("run-classes/model", model)
    config = json.loads((model / "config.json").read_text())
    config |= {"id2label": {"0": "LABEL_0", "1": "LABEL_1"}, "label2id": {"LABEL_0": 0, "LABEL_1": 1}}
    (model / "config.json").write_text(json.dumps(config))
    options = [model, "--task", "classification", "--data"]
    said = call("evaluate", *options, "classes")
    assert f"{model} has a damaged config.json: it is not as it was written; " in said.err
    assert said.err.endswith(f"if you changed it yourself, delete {model / 'seal.json'}\n")
    (model / "seal.json").unlink()
    assert accuracy(*options, "classes")[0] == record.load(place / "run-classes").scores["accuracy"]["value"]
    rows = [("dog", "animal"), ("car", "thing")]
    said = call("evaluate", *options, table(tmp_path / "only", test=rows))
    assert f"{model} does not name its classes, and {tmp_path / 'only'} has no train split that would" in said.err
    said = call("evaluate", *options, table(tmp_path / "three", train=[*rows, ("eel", "fish")], test=rows))
    assert said == Said(2, "", f"synthattn: {model} knows 2 classes, the data has 3\n")


def test_data_that_is_only_scored_needs_no_train_split(place, tmp_path):
    rows = [(" ".join([*WORDS[n % 7 : n % 7 + 3], str(n)]), ("animal", "thing")[n % 2]) for n in range(200)]
    held_out = sum(content_hash({"text": text, "label": label}) % 50 == 0 for text, label in rows)
    assert 0 < held_out < 20
    only = table(tmp_path / "only", test=rows[:13])
    assert accuracy("run-classes", "--data", only)[1:] == (13, ["test"])
    (tmp_path / "labels.txt").write_text("".join(f"{label}\n" for _, label in rows[:13]))
    options = ["--task", "classification", "--data", only]
    assert accuracy(tmp_path / "labels.txt", *options) == (100.0, 13, ["test"])
    alone = table(tmp_path, lone=rows) / "lone.tsv"
    assert accuracy("run-classes", "--data", alone)[1:] == (200, ["train"])
    assert accuracy("run-classes", "--data", alone, "--split", "validation")[1:] == (held_out, ["validation"])

    # Of what a run has learned from, only the part that was held out is scored, wherever it is.
    run = tmp_path / "run"
    shutil.copytree("run-classes", run)
    saved = (run / "settings.yaml").read_text()
    (run / "settings.yaml").write_text(saved.replace("source: classes", f"source: {alone}"))
    assert accuracy(run)[1:] == (held_out, ["validation"])
    assert accuracy(run, "--data", alone)[1:] == (held_out, ["validation"])
    moved = table(tmp_path / "moved", lone=rows) / "lone.tsv"
    assert accuracy(run, "--data", moved)[1:] == (200, ["train"]), "the record does not know it"
    found = record.load(run)
    found.data["sources"] = {str(alone): HeldOut(open_source(str(alone))).fingerprint()}
    found.save(run)
    assert accuracy(run, "--data", moved)[1:] == (held_out, ["validation"])


def test_evaluate_predictions(place, tmp_path):
    references = (place / "pairs" / "test.de").read_text()
    (tmp_path / "good.txt").write_text(references)
    options = ["--task", "translation", "--data", "pairs", "--json"]
    found = json.loads(call("evaluate", tmp_path / "good.txt", *options).out)
    assert found["scores"]["bleu"]["value"] == pytest.approx(100)
    assert found["examples"] == 7
    # What a run writes can be scored again.
    found = json.loads(call("evaluate", "run-pairs/predictions.jsonl", *options).out)
    assert found["scores"] == record.load(place / "run-pairs").scores
    said = call("evaluate", tmp_path / "good.txt", *options[:-1])
    assert "100.000" in said.out
    assert call("evaluate", tmp_path / "good.txt", *options[:-1], "--quiet") == Said(0, "", "")


def test_predictions_with_characters_that_some_take_for_the_end_of_a_line(place, tmp_path):
    lines = ["dog\u2028cat \x0b\x85", *(place / "pairs" / "test.de").read_text().splitlines()[1:]]
    (tmp_path / "odd.txt").write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "odd.jsonl").write_text(
        "".join(json.dumps({"prediction": line}, ensure_ascii=False) + "\n" for line in lines)
    )
    for name in ("odd.txt", "odd.jsonl"):
        assert call("evaluate", tmp_path / name, "--task", "translation", "--data", "pairs", "--quiet").code == 0


def test_a_line_ends_at_a_line_feed_alone(place, tmp_path):
    """A carriage return before it belongs to the end; one by itself is a character like others."""
    lines = (place / "pairs" / "test.de").read_text().splitlines()
    lines[0] = lines[0].replace(" ", " \r ", 1)
    for name, end in (("unix.txt", "\n"), ("windows.txt", "\r\n")):
        (tmp_path / name).write_bytes("".join(f"{line}{end}" for line in lines).encode())
        found = json.loads(call("evaluate", tmp_path / name, *PAIRS, "--json").out)
        assert found["examples"] == 7
        assert found["scores"]["bleu"]["value"] == pytest.approx(100)
    asked = b"the\rdog\r\nold house\n\r\nlast\r"
    (tmp_path / "asked.txt").write_bytes(asked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answering, "_answers", lambda model, tokenizer, texts, *rest: map(repr, texts))
        for said in (call("generate", "run-pairs", tmp_path / "asked.txt"), call("generate", "run-pairs", stdin=asked)):
            assert said == Said(0, "'the\\rdog'\n'old house'\n''\n'last\\r'\n", "")


def test_predictions_of_classes(place, tmp_path):
    labels = [line.split("\t")[1] for line in (place / "classes" / "test.tsv").read_text().splitlines()[1:]]
    (tmp_path / "labels.txt").write_text("\n".join([*labels[:-1], "nonsense"]))
    options = ["--task", "classification", "--data", "classes"]
    found = json.loads(call("evaluate", tmp_path / "labels.txt", *options, "--json").out)
    assert found["scores"]["accuracy"]["value"] == pytest.approx(100 * 6 / 7)
    assert found["unparsable"] == 1
    assert "1 answers could not be understood" in call("evaluate", tmp_path / "labels.txt", *options).out


def test_generate_translations(place, tmp_path):
    (tmp_path / "some.txt").write_text("the dog sees\n\nold house\n")
    from_file = call("generate", "run-pairs", tmp_path / "some.txt", "--max-new-tokens", "4")
    from_stdin = call("generate", "run-pairs/model", "--max-new-tokens", "4", stdin="the dog sees\n\nold house\n")
    in_batches = call("generate", "run-pairs", tmp_path / "some.txt", "--max-new-tokens", "4", "--batch", "1")
    assert from_file == from_stdin == in_batches
    assert (from_file.code, from_file.err, from_file.out.count("\n")) == (0, "", 3)
    assert max(len(line.split()) for line in from_file.out.splitlines()) <= 4
    beams = call("generate", "run-pairs", tmp_path / "some.txt", "--max-new-tokens", "4", "--beams", "3")
    assert beams.out.count("\n") == 3
    assert call("generate", "run-pairs") == Said(0, "", "")


@pytest.mark.parametrize("run", ["run-pairs", "run-texts", "run-classes"])
def test_generate_leaves_an_empty_line_empty(place, run):
    options = ["generate", run, "--max-new-tokens", "4"]
    said = call(*options, stdin="\nthe dog\n  \nold house\n").out.split("\n")
    assert said[::2] == ["", "", ""]
    assert said[1::2] == call(*options, stdin="the dog\nold house\n").out.splitlines()
    assert call(*options, stdin="\n\n") == Said(0, "\n\n", "")


def test_bad_examples_are_skipped_and_a_direction_is_taken(place, tmp_path):
    """The record says what was left out; without the option, the first error says how many there are."""
    data = Path(shutil.copytree("pairs", tmp_path / "data"))
    for language in ("en", "de"):
        lines = (data / f"train.{language}").read_text().splitlines()
        (data / f"train.{language}").write_text("\n".join([*lines[:-2], "", ""]) + "\n")
    options = ["train", "--task", "translation", "--data", data, "--steps", "1", *TINY, "--direction", "de-en"]
    said = call(*options, "--output", tmp_path / "first")
    problem = "train.de and train.en, line 39: source is empty; remove the example"
    assert said == Said(2, "", f"synthattn: {problem} (2 such records in train; --skip-bad leaves them out)\n")
    assert call(*options, "--skip-bad", "--output", tmp_path / "run").code == 0
    found = record.load(tmp_path / "run")
    assert f"train: 2 records left out that cannot be used, the first: {problem}" in found.notes
    assert found.settings["data"]["columns"] == "source=de,target=en"
    assert found.data["train"][0]["examples"] == 38
    first = json.loads((tmp_path / "run" / "predictions.jsonl").read_text().splitlines()[0])
    assert first["source"] == (data / "test.de").read_text().splitlines()[0]
    assert call("evaluate", tmp_path / "run", "--quiet").code == 0


def test_generate_what_the_run_predicted(place):
    """With the same decoding, texts of the test split get the answers that were scored."""
    predictions = [json.loads(line) for line in (place / "run-pairs/predictions.jsonl").read_text().splitlines()]
    said = call("generate", "run-pairs", place / "pairs" / "test.en", "--max-new-tokens", "6")
    assert said.out.splitlines() == [one["prediction"] for one in predictions]


def test_generate_continues_a_text(place):
    def written(*options: str) -> str:
        said = call("generate", "run-texts", "--max-new-tokens", "5", *options, stdin="the dog sees\n")
        assert (said.code, said.err) == (0, "")
        assert said.out.startswith("the dog sees")
        return said.out

    assert written() == written("--seed", "1"), "without chance"
    drawn = [written("--temperature", "2", "--seed", seed) for seed in "1123"]
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) > 1
    longer = call("generate", "run-texts", "--max-new-tokens", "5", stdin="the dog " * 50 + "\n")
    assert longer.out.startswith("the dog " * 50), "of a long text only the end is read, but all of it is shown"


def test_generate_names_classes(place):
    said = call("generate", "run-classes", stdin="the dog\nold house\n\n")
    assert said.code == 0
    assert set(said.out.split()) <= {"animal", "thing"}
    assert said.out.count("\n") == 3


def for_task(place: Path, folder: Path, task: str) -> Path:
    """The run of translation as if it were one of another task."""
    shutil.copytree(place / "run-pairs", folder)
    for name, text in (("settings.yaml", "task: {}"), ("record.json", '"task": "{}"')):
        saved = (folder / name).read_text()
        (folder / name).write_text(saved.replace(text.format("translation"), text.format(task)))
    return folder


def test_generate_writes_the_words_of_a_task_of_glue(place, tmp_path, monkeypatch):
    monkeypatch.setattr(answering, "_answers", lambda model, tokenizer, texts, *rest: iter(texts))
    run = for_task(place, tmp_path / "run", "cola")
    assert call("generate", run, stdin="the  dog \n") == Said(0, "cola sentence: the dog\n", "")
    assert call("generate", run, "--raw", stdin="the  dog \n") == Said(0, "the  dog \n", "")
    assert call("generate", for_task(place, tmp_path / "suite", "glue"), stdin="the dog\n").out == "the dog\n"


@pytest.mark.parametrize(
    ("task", "form"),
    [("rte", "rte sentence1: ... sentence2: ..."), ("stsb", "stsb sentence1: ... sentence2: ...")],
)
def test_generate_says_how_several_texts_are_written(place, tmp_path, task, form):
    run = for_task(place, tmp_path / "run", task)
    message = f"synthattn: {task} reads more than one text; write each line as '{form}', and say --raw\n"
    assert call("generate", run, stdin="the dog\n") == Said(2, "", message)
    assert call("generate", run, "--raw", "--max-new-tokens", "2", stdin="the dog\n").code == 0


@pytest.mark.parametrize("verb", ["evaluate", "generate"])
def test_weights_that_are_cut_off(place, tmp_path, verb):
    shutil.copytree("run-pairs", tmp_path / "run")
    weights = tmp_path / "run" / "model" / "model.safetensors"
    os.truncate(weights, weights.stat().st_size - 5)
    said = call(verb, tmp_path / "run")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"synthattn: {weights} is cut off or damaged: ")
    assert said.err.endswith("; copy it again, or train the model anew\n")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("verb", ["evaluate", "generate"])
@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json", "generation_config.json"])
def test_one_byte_of_a_finished_model_that_is_another(place, tmp_path, verb, name):
    shutil.copytree("run-pairs", tmp_path / "run")
    file = tmp_path / "run" / "model" / name
    content = bytearray(file.read_bytes())
    place_of = -5 if name == "model.safetensors" else content.rindex(b"1")
    content[place_of] ^= 1
    file.write_bytes(content)
    said = call(verb, tmp_path / "run")
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert name in said.err


def test_settings_that_are_not_those_of_the_record(place, tmp_path):
    shutil.copytree("run-pairs", tmp_path / "run")
    file = tmp_path / "run" / "settings.yaml"
    text = file.read_text()
    file.write_text(text[: text.index("  max_new_tokens")])
    said = call("evaluate", tmp_path / "run", "--quiet")
    both = f"{file} has evaluation.max_new_tokens=None, {tmp_path / 'run' / 'record.json'} has 6: one of them"
    assert said == Said(2, "", f"synthattn: {both} was changed or damaged; put back what it was\n")


def test_generate_answers_before_the_input_ends(place):
    answered = threading.Event()
    seen = []

    class Watched(io.StringIO):
        def write(self, text: str) -> int:
            answered.set()
            return super().write(text)

    reading, writing = os.pipe()

    def ask() -> None:
        with os.fdopen(writing, "w") as pipe:
            pipe.write("the dog\n")
            pipe.flush()
            seen.append(answered.wait(60))
            pipe.write("old house\n")

    asking = threading.Thread(target=ask)
    shown = Watched()
    with os.fdopen(reading) as source, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["synthattn", "generate", "run-classes", "--batch", "1"])
        patch.setattr(sys, "stdin", source)
        patch.setattr(sys, "stdout", shown)
        asking.start()
        with pytest.raises(SystemExit):
            main()
    asking.join()
    assert seen == [True]
    assert shown.getvalue().count("\n") == 2


PAIRS = ["--task", "translation", "--data", "pairs"]


CLASSES = ["--task", "classification", "--data", "classes"]
MISTAKES: list[tuple[list[str], str]] = [
    (["train", "--task", "translatoin"], "unknown task 'translatoin'; did you mean translation?"),
    (["compare", "--task", "translatoin", "--data", "pairs"], "unknown task 'translatoin'; did you mean"),
    (["compare", *PAIRS, "--preset", "tinny"], "unknown preset 'tinny'; did you mean tiny?"),
    (["compare", *PAIRS, "--attention", "random,ramdom"], "unknown attention 'ramdom'; did you mean random"),
    (["compare", *PAIRS, "--attention", "random,random"], "random is given twice"),
    (["compare", *PAIRS, "--attention", " , "], "nothing to compare: give at least one attention"),
    (["compare", *PAIRS, "--seeds", "0"], "seeds must be at least 1, got 0"),
    (["compare", *PAIRS, "--output", "pairs"], "pairs is not empty; choose another folder, or go on with --resume"),
    (["compare", *PAIRS, "--split", "tset"], "pairs has no split 'tset'; did you mean test?"),
    (["compare", "--resume", "empty"], "empty holds no compare.yaml, so it is not the folder of a comparison"),
    (["compare", "--resume", "empty", "--seeds", "3"], "--resume takes all settings from empty"),
    (["train", "--resume", "run-pairs", "--steps", "9"], "--resume takes all settings from run-pairs"),
    (["train", "--resume", "empty"], "empty holds no settings.yaml, so it is not the folder of a run"),
    (["train", "--task", "listops"], "listops has no built-in data; say where yours is: --data FOLDER"),
    (["train", "--config", "nothing.yaml"], "nothing.yaml: No such file or directory; check the path"),
    (["train", "--config", "binary.txt"], "binary.txt is not YAML"),
    (["evaluate", "nothing"], "there is no nothing; give the folder of a run or a model, or a file of predictions"),
    (["evaluate", "empty"], "empty is neither the folder of a run nor of a model"),
    (["evaluate", "run-pairs", "--split", "tset"], "pairs has no split 'tset'; did you mean test?"),
    (
        ["evaluate", "run-texts", *PAIRS],
        "run-texts/model holds a SynthesizerForCausalLM, translation needs a SynthesizerForConditionalGeneration",
    ),
    (
        ["evaluate", "run-classes/model", "--task", "glue"],
        "run-classes/model holds a SynthesizerForSequenceClassification, glue needs a SynthesizerForConditional",
    ),
    (["evaluate", "run-pairs", "--task", "dialogue", "--vectors", "nothing"], "nothing: cannot be read: No such"),
    (["evaluate", "pairs/valid.de"], "valid.de does not say what its predictions are for; give --task, and --data"),
    (["evaluate", "pairs/valid.de", *PAIRS], "pairs/valid.de has 5 predictions, pairs has 7 in test"),
    (["evaluate", "binary.txt", *PAIRS], "binary.txt is not UTF-8: invalid start byte at byte 4"),
    (["evaluate", "texts/test.txt", "--task", "language-modeling"], "which a file of predictions lacks"),
    (["train", *PAIRS, "--steps", "5", "--set", "training=5"], "training must be a group of settings, got 5"),
    (
        ["train", *PAIRS, "--max-length", "1", "--steps", "1", "--preset", "tiny"],
        "--max-length (model.max_position_embeddings) must be at least 2 for translation, got 1",
    ),
    (["compare", "--max-length", "0"], "must be at least 2 for language-modeling, got 0"),
    (["train", "--task", "span-corruption", "--max-length", "2"], "at least 3 for span-corruption, got 2"),
    (["generate", "nothing"], "there is no folder nothing; give that of a run or of a model"),
    (["generate", "empty"], "empty holds no config.json, so it is not a saved model"),
    (["generate", "run-pairs", "nothing.txt"], "nothing.txt: No such file or directory; check the path"),
    (["generate", "run-pairs", "binary.txt"], "binary.txt is not UTF-8: invalid start byte"),
    (["generate", "run-pairs", "--beams", "0"], "evaluation.beams must be at least 1, got 0"),
    (["generate", "run-pairs", "--max-new-tokens", "0"], "evaluation.max_new_tokens must be at least 1, got 0"),
    (["generate", "run-pairs", "--batch", "0"], "--batch must be at least 1, got 0"),
    (["generate", "run-pairs", "--temperature", "-1"], "--temperature must be at least 0, got -1"),
    (["compare", *PAIRS, "--attention", "random,dense"], "vanilla is not in the list, and the others are compared"),
    (["compare", *PAIRS, "--attention", "vanilla,dense(window=4)"], "window must be a positive odd number, got 4"),
    (["compare", *PAIRS, "--attention", "vanilla,random+lightconv"], "lightconv is a layer of its own, it cannot be"),
    (["compare", *PAIRS, "--preset", "tiny", "--set", "model.d_model=30"], "num_heads=4 does not divide d_model=30"),
    (["compare", *PAIRS, "--preset", "tiny", "--set", "model.num_heads=5"], "num_heads=5 does not divide d_model=32"),
    (["compare", *PAIRS, "--set", "model.dropout=2"], "dropout must be at least 0 and below 1, got 2"),
    (["compare", *PAIRS, "--set", "model.d_modle=3"], "a configuration has no field 'd_modle'; did you mean d_model?"),
    (["compare", *PAIRS, "--learning-rate", "inf"], "training.learning_rate must be a number, got 'inf'"),
    (["compare", *PAIRS, "--learning-rate", "-1"], "training.learning_rate must be above 0, got -1"),
    (["compare", *PAIRS, "--learning-rate", "fast"], "Invalid value for '--learning-rate'"),
    (["compare", *PAIRS, "--output", "binary.txt/new"], "binary.txt/new: Not a directory; choose another path"),
    (["compare", *PAIRS, "--output", "binary.txt"], "binary.txt: File exists; choose another path"),
    (["compare", *PAIRS, "--steps", "0"], "training.steps must be at least 1, got 0"),
    (["compare", *PAIRS, "--steps", "3", "--tokens", "5"], "got steps and tokens; leave one"),
    (["compare", *PAIRS, "--steps", "3", "--budget", "1h"], "--budget chooses the number of steps; leave --steps out"),
    (["compare", *PAIRS, "--budget", "soon"], "--budget takes a time such as 90s, 30min or 1.5h, got 'soon'"),
    (["compare", *PAIRS, *TINY, "--attention", "vanilla", "--budget", "0.01s"], "is too short: 20 steps"),
    (["compare", *PAIRS, "--jobs", "0"], "jobs must be at least 1, got 0"),
    (["compare", *PAIRS, "--threads", "0"], "threads must be at least 1, got 0"),
    (["compare", *PAIRS, *TINY, "--batch-tokens", "1"], "an example has 10 tokens, a batch may have 1; allow more or"),
    (["compare", *PAIRS, *TINY, "--vocab-size", "3"], "a vocabulary of 3 is too small for words; "),
    (["compare", *PAIRS, "--limit", "0"], "evaluation.limit must be at least 1, got 0"),
    (["compare", *PAIRS, "--seed", "-1"], "training.seed must be at least 0, got -1"),
    (["compare", *PAIRS, "--minutes", "0"], "training.minutes must be above 0, got 0"),
    (["compare", *PAIRS, "--step", "5"], "No such option: --step (Possible options: --seed, --set, --steps)"),
    (["compare", *PAIRS, "--set", "steps"], "--set needs NAME=VALUE, such as training.steps=500, got 'steps'"),
    (["compare", *PAIRS, "--set", "training.stepps=3"], "there is no setting training.stepps; did you mean steps?"),
    (["compare", *PAIRS, "--set", "training.precision=fp8"], "must be 'auto' or 'fp32' or 'bf16', got 'fp8'"),
    (["compare", *PAIRS, "--set", "model.attention=random"], "say what to compare with --attention"),
    (["compare", *PAIRS, "--direction", "fr-de"], "no column 'fr', which source=fr asks for; there are de, en"),
    (["compare", *CLASSES, "--direction", "de-en"], "--direction is for translation, and the task is classification"),
    (["compare", *CLASSES, "--columns", "text=review"], "no column 'review', which text=review asks for; there are"),
    (["compare", *CLASSES, "--columns", "txt=text"], "has no field 'txt' for --columns; did you mean text?"),
    (["compare", *PAIRS[:2], "--data", "nowhere"], "there is no nowhere; write a path, hub:NAME or builtin:NAME"),
    (["compare", *PAIRS[:2], "--data", "empty"], "empty: no data in this folder; files are .txt, .tsv"),
    (["compare", *PAIRS[:2], "--data", "binary.txt"], "binary.txt, line 1: byte 0xff at position 5 is not UTF-8"),
    (["compare", "--task", "glue", "--data", "texts"], "texts holds no folder of a task of glue, such as cola"),
    (["train", *PAIRS, "--attention", "vanilla,random"], "malformed attention 'vanilla,random': expected '+' or"),
    (["train", *PAIRS, "--start", "nothing"], "no preset and no folder 'nothing'"),
    (["train", *PAIRS, "--start", "empty"], "empty holds no config.json, so it is not a saved model"),
    (["train", *PAIRS, "--set", "training.save_every=7"], "must be a multiple of training.log_every=10, got 7"),
    (["train", *PAIRS, "--set", "trainig.steps=3"], "there are no settings 'trainig'; did you mean training?"),
    (["train", *PAIRS, "--set", "training.steps=many"], "training.steps must be a whole number or null, got 'many'"),
    (["train", *PAIRS, "--set", "training.schedule=cosin"], "'linear' or 'cosine' or 'constant', got 'cosin'"),
    (["train", *PAIRS, "--steps", "5", "--output", "pairs"], "pairs is not empty; choose another folder"),
    (["train", *PAIRS[:2], "--data", "builtin:dosc"], "did you mean docs?"),
    (["evaluate", "run-pairs", "--run", "random-0"], "run-pairs holds no compare.yaml; leave --run out"),
    (["generate", "run-pairs", "--temperature", "hot"], "Invalid value for '--temperature'"),
    (["export", "nothing"], "there is no folder nothing; give that of a run or of a model"),
    (["export", "empty"], "empty holds no config.json, so it is not a saved model"),
    (["export", "run-pairs", "--format", "onx"], "unknown format 'onx'; did you mean onnx?"),
    (["export", "run-pairs", "--output", "model.txt"], "--output must end in .pt2, got model.txt"),
    (
        ["export", "run-pairs", "--output", "none/model.pt2"],
        "there is no folder none for model.pt2; make it, or",
    ),
    (["data", "pairs", "--task", "translate"], "unknown task 'translate'; did you mean translation?"),
    (["data", "pairs"], "Missing option '--task'; see synthattn data --help"),
    (["data", "pairs", *PAIRS[:2], "--tokenizer", "letters"], "must be one of unigram, bytes, words, got 'letters'"),
    (["data", "pairs", *PAIRS[:2], "--max-length", "1"], "--max-length must be at least 2, got 1"),
    (["data", "pairs", *PAIRS[:2], "--batch-tokens", "0"], "--batch-tokens must be at least 1, got 0"),
    (["data", "classes", *CLASSES[:2], "--columns", "text"], "'text' is no choice of a column; write FIELD=COLUMN"),
    (["data", "classes", *PAIRS[:2]], "which of text, label is to be translated? Name them: source=COLUMN"),
    (["describe", "tinny"], "no preset and no folder 'tinny'; did you mean tiny?"),
    (["describe", "tiny", "--attention", "dense(windw=3)"], "dense has no option 'windw'; did you mean window?"),
    (["convert", "nothing", "--data", "texts/test.txt"], "texts/test.txt has 7 texts, this needs at least 8"),
    (["study", "ability"], "there is no study 'ability'; did you mean abilities?"),
    (["probe", "nothing", "--data", "texts/test.txt"], "there is no folder nothing; give that of a model of transf"),
    (["probe", "empty", "--data", "nothing.txt"], "nothing.txt is not a file; give a file with a text per line"),
    (["bench", "lyer"], "there is no benchmark 'lyer', only layer, model, train, decode; did you mean layer?"),
    (["bench", "layer", "--shapes", "16"], "--shapes are written BATCHxLENGTH, such as 16x512, got '16'"),
    (["bench", "--show", "nothing.json"], "nothing.json: No such file or directory; check the path"),
    (["reproduce", "transltion"], "there is no table 'transltion'; did you mean translation"),
    (["reproduce", "translation", "--scale", "cpu"], "--scale cpu needs --data: a folder with a folder for each"),
    (["comapre"], "No such command 'comapre'. Did you mean 'compare'?"),
]
"""Wrong commands, and the part of the printed line that names what was wrong, the numbers and the way out."""


@pytest.mark.parametrize(("arguments", "message"), MISTAKES)
def test_a_mistake_gets_one_line(place, arguments, message, tmp_path):
    verb = arguments[0]
    more = [] if verb in ("generate", "data", "describe", "probe", "comapre") else ["--quiet"]
    if verb in ("train", "compare") and "--output" not in arguments and "--resume" not in arguments:
        more += ["--output", str(tmp_path / "new")]
    said = call(*arguments, *more)
    assert said.code == 2
    assert said.err.startswith("synthattn: ")
    assert message in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""
    if verb == "compare":
        assert not (tmp_path / "new").exists(), "a mistake leaves nothing in the way of the next try"


def test_the_table_of_mistakes_is_long_and_has_every_verb():
    assert len(MISTAKES) >= 60
    assert {arguments[0] for arguments, _ in MISTAKES} >= set(GROUP.commands)


def test_standard_input_that_is_no_text(place):
    said = call("generate", "run-pairs", stdin=b"all \xff wrong\n")
    assert said == Said(2, "", "synthattn: standard input is not UTF-8: invalid start byte in line 1\n")


def test_predictions_that_are_no_objects(place, tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"prediction": "dog"}\n{"answer": "cat"}\n')
    said = call("evaluate", tmp_path / "bad.jsonl", *PAIRS)
    assert said.code == 2
    assert "bad.jsonl: every line must be an object with a 'prediction': 'prediction'" in said.err


@pytest.mark.parametrize("text", ["data: pairs\n", "data: [1]\n", "- 1\n", "training:\n  steps: 3\n  stepps: 4\n"])
def test_a_file_of_settings_that_is_wrong(place, tmp_path, text):
    (tmp_path / "wrong.yaml").write_text(text)
    said = call("train", "--config", tmp_path / "wrong.yaml", "--output", tmp_path / "new", "--quiet")
    assert said.code == 2
    assert said.err.count("\n") == 1


def test_options_win_over_a_file_and_set_over_options(place, tmp_path):
    from synthattn.training.gather import gather

    (tmp_path / "some.yaml").write_text("data:\ntraining:\n  minutes: 3\n  seed: 1\n  clip: 2\n")
    options = {"data.task": "translation", "training.steps": 5, "training.seed": 2}
    found = gather(tmp_path / "some.yaml", options, ["training.seed=3", "model.d_model=16"])
    assert (found.data.task, found.data.source) == ("translation", "builtin:grammar-de")
    assert (found.training.minutes, found.training.steps) == (None, 5), "one end takes the place of another"
    assert (found.training.seed, found.training.clip) == (3, 2.0)
    assert found.model.fields == {"d_model": 16}


# A run that fails leaves the file of its curves to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_compare_as_a_command(place, tmp_path):
    """Nothing but vanilla, whose learning rate is absurd: the exit code says that nothing was done."""
    options = ["--attention", "vanilla", "--learning-rate", "1e30", "--steps", "3", *TINY[:-1]]
    said = call("compare", *PAIRS, *options, "--output", tmp_path / "new")
    assert said.code == 1
    assert "failed: the loss is nan" in " ".join(said.out.split())
    assert "No answer yet: no model was trained to the end." in said.out
    assert said.err.startswith("data: training on the CPU in fp32\ndata: preparing the data\n")
    again = call("compare", "--resume", tmp_path / "new", "--quiet")
    assert again == Said(1, "", "")


def test_a_comparison_that_is_stopped(place, tmp_path):
    """It says how to go on; not with data that has become another, though."""
    shutil.copytree("classes", tmp_path / "data")
    folder = tmp_path / "with [brackets] and a long name, so that a line of eighty letters has no room for it"
    options = ["--attention", "vanilla,random", "--steps", "2", *TINY, "--output", folder]
    with pytest.MonkeyPatch.context() as patch:
        original = execution.train

        def train(settings: Any, *rest: Any, **more: Any) -> Any:
            if settings.model.attention == "random":
                raise KeyboardInterrupt
            return original(settings, *rest, **more)

        patch.setattr(execution, "train", train)
        said = call("compare", "--task", "classification", "--data", tmp_path / "data", *options)
    message = f"stopped; what was saved is in {folder}. Go on with: synthattn compare --resume '{folder}'\n"
    assert said == Said(130, "", message)
    with (tmp_path / "data" / "train.tsv").open("a") as file:
        file.write("new dog\tanimal\n")
    said = call("compare", "--resume", folder, "--quiet")
    assert said.code == 2
    assert f"{tmp_path / 'data'} has changed since {folder} was begun; compare anew" in said.err
    shutil.copy("classes/train.tsv", tmp_path / "data" / "train.tsv")
    assert call("compare", "--resume", folder, "--quiet") == Said(0, "", "")


GROUP: Any = typer.main.get_command(app)


@pytest.mark.parametrize("verb", sorted(GROUP.commands))
def test_help_names_and_explains_every_option(verb, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    shown = call(verb, "--help")
    assert shown.code == 0
    words = set(shown.out.split())
    for parameter in GROUP.commands[verb].params:
        assert getattr(parameter, "help", None), parameter.name
        if parameter.opts[0].startswith("--"):
            assert parameter.opts[0] in words
        # What is in brackets would be taken for mark-up, and not be shown.
        assert set(parameter.help.replace("\\[", "[").split()) <= words


def test_help_imports_nothing_heavy():
    code = """
import sys
from synthattn.cli.app import main
for verb in sys.argv[1:]:
    sys.argv = ["synthattn", verb, "--help"]
    try:
        main()
    except SystemExit:
        pass
print(*[m for m in ("torch", "transformers", "numpy", "yaml") if m in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code, *GROUP.commands], capture_output=True, text=True, check=True)
    assert done.stderr.split() == []
    assert done.stdout.count("Usage:") == len(GROUP.commands)


def test_as_a_module():
    done = subprocess.run([sys.executable, "-m", "synthattn", "--version"], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"synthattn \d+\.\d+.*\n", done.stdout)
