"""``synthattn data`` over small files of the formats that people have."""

import gzip
import json

import pytest

pytestmark = pytest.mark.unchecked

WORDS = ["red", "green", "blue", "old", "new", "small", "large", "house", "tree", "car", "dog", "cat", "sees", "the"]


def sentence(n: int) -> str:
    return " ".join(WORDS[(n * k + k) % len(WORDS)] for k in range(3, 9)) + f" {n} ."


@pytest.fixture
def run(command, tmp_path, monkeypatch):
    monkeypatch.setenv("SYNTHATTN_CACHE", str(tmp_path / "cache"))
    return lambda *arguments: command("data", *arguments, "--tokenizer", "bytes", "--vocab-size", "400")


@pytest.fixture
def parallel(tmp_path):
    folder = tmp_path / "pairs"
    folder.mkdir()
    for split, count in (("train", 60), ("valid", 8)):
        start = 0 if split == "train" else 58  # two of train are in valid as well
        for language in ("en", "de"):
            lines = "".join(f"{language} {sentence(n)}\n" for n in range(start, start + count))
            (folder / f"{split}.{language}.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))
    return folder


def test_a_table_with_examples_and_complaints(run, parallel):
    result = run(str(parallel), "--task", "translation")
    assert result.returncode == 0, result.stderr
    for text in (
        "train",
        "validation",
        "60",
        "source: en ",
        "target: de ",
        "validation: 2 of 8 examples also in train",
    ):
        assert text in result.stdout


def test_as_json_twice_from_the_cache(run, parallel, tmp_path):
    first = run(str(parallel), "--task", "translation", "--json")
    report = json.loads(first.stdout)
    assert [split["examples"] for split in report["splits"]] == [60, 8]
    assert report["splits"][1]["also_in_train"] == 2
    assert report["splits"][0]["source"]["longest"] > 5
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*") if path.is_file()}
    assert run(str(parallel), "--task", "translation", "--json").stdout == first.stdout
    assert made == {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*") if path.is_file()}


def test_what_is_the_same_but_for_a_number_is_not_parted(run, tmp_path):
    from synthattn.training.prepare import open_for_evaluation, open_parts
    from synthattn.training.settings import DataSettings

    rows = "".join(f"{n}\t{n % 2}\t{sentence(n % 150)}\n" for n in range(300))
    (tmp_path / "news.tsv").write_text(f"id\tlabel\ttext\n{rows}")
    report = json.loads(run(str(tmp_path / "news.tsv"), "--task", "classification", "--json").stdout)
    train, validation = report["splits"]
    assert (train["repeated"], validation["also_in_train"]) == (train["examples"] // 2, 0)
    assert validation["examples"] > 1
    settings = DataSettings(str(tmp_path / "news.tsv"), "classification")
    (part,) = open_parts(settings)
    (judged,) = open_for_evaluation(settings, None)
    assert judged.source.fingerprint() == part.source.fingerprint()  # what was learned from must not be scored
    assert part.source.fingerprint() == report["fingerprint"]
    assert len(list(part.source.read("validation"))) == validation["examples"]


def test_columns_and_a_held_out_part(run, tmp_path):
    rows = "".join(f'{n % 3},"{sentence(n)}","more, {n}"\n' for n in range(200))
    (tmp_path / "news.csv").write_text(rows)
    report = json.loads(
        run(str(tmp_path / "news.csv"), "--task", "classification", "--columns", "label=0,text=1+2", "--json").stdout
    )
    counts = {split["name"]: split["examples"] for split in report["splits"]}
    assert sum(counts.values()) == 200
    assert 0 < counts["validation"] < 20
    assert set(report["labels"]) == {"0", "1", "2"}
    assert any("no validation split" in line for line in report["complaints"])
    assert "more, " in report["shown"][0][0]


def test_examples_that_cannot_be_used_are_counted_and_named(run, tmp_path):
    folder = tmp_path / "cola"
    folder.mkdir()
    lines = ["sentence\tlabel", *(f"{sentence(n)}\t{n % 2}" for n in range(30))]
    lines[5] = "fine\tmaybe"
    lines[9] = " \t1"
    (folder / "train.tsv").write_text("\n".join(lines) + "\n")
    (folder / "dev.tsv").write_text("\n".join(lines[:4]) + "\n")
    report = json.loads(run(str(folder), "--task", "cola", "--json").stdout)
    assert report["splits"][0]["problems"] == 2
    assert report["splits"][0]["examples"] == 28
    assert any("train.tsv, line 6: unknown label 'maybe'" in line for line in report["complaints"])
    assert any("train.tsv, line 10: sentence is empty" in line for line in report["complaints"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "--task", "translation"], "nowhere"),
        (["builtin:nothing", "--task", "translation"], "nothing"),
        (["hub:glue/rte", "--task", "rte"], "synthattn[hub]"),
    ],
)
def test_a_mistake_gets_one_line(run, arguments, message):
    result = run(*arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr


def test_an_unknown_task(run, parallel):
    result = run(str(parallel), "--task", "translate")
    assert "unknown task 'translate'; did you mean translation" in result.stderr


def test_a_suite_is_looked_at_task_by_task(run, tmp_path):
    for task, text in (("CoLA", "sentence\tlabel\n"), ("RTE", "sentence1\tsentence2\tlabel\n")):
        (tmp_path / "glue" / task).mkdir(parents=True)
        fields = text.count("sentence")
        rows = "".join("\t".join([sentence(n)] * fields + [str(n % 2)]) + "\n" for n in range(9))
        for split in ("train", "dev"):
            (tmp_path / "glue" / task / f"{split}.tsv").write_text(text + rows)
    result = run(str(tmp_path / "glue"), "--task", "glue")
    assert result.returncode == 0, result.stderr
    lines = [line.replace("│", " ").split() for line in result.stdout.splitlines()]
    assert [(line[0], line[1][:5], line[2]) for line in lines if line[:1] in (["cola"], ["rte"])] == [
        ("cola", "train", "9"),
        ("cola", "valid", "9"),
        ("rte", "train", "9"),
        ("rte", "valid", "9"),
    ]
    (tmp_path / "glue" / "RTE" / "train.tsv").write_text("sentence1\tsentence2\tlabel\n")
    found = run(str(tmp_path / "glue"), "--task", "glue", "--json")
    assert found.returncode == 1
    report = json.loads(found.stdout)
    assert report["cola"]["splits"][0]["examples"] == 9
    assert report["rte"] == "no record of train can be used for rte, of 0: it has no records"


def test_reasons_are_said_where_nothing_can_be_used(run, tmp_path):
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + " \tx\n \ty\n" * 5)
    result = run(str(tmp_path), "--task", "classification")
    reason = "train.tsv, line 2: text is empty; remove the example"
    assert result.stderr == f"synthattn: no record of train can be used for classification, of 10: {reason}\n"
    folder = tmp_path / "only"
    folder.mkdir()
    (folder / "test.txt").write_text(f"{sentence(1)}\n")
    (folder / "dev.txt").write_text(f"{sentence(2)}\n")
    result = run(str(folder), "--task", "language-modeling")
    message = f"{folder} has no train split, only validation, test; name a file train.*"
    assert " ".join(result.stdout.split()).startswith(message)


def test_directions_and_guessed_columns_are_said(run, tmp_path):
    rows = "".join(f"en {sentence(n)}\tde {sentence(n)}\n" for n in range(60))
    (tmp_path / "train.tsv").write_text("en\tde\n" + rows)
    report = json.loads(run(str(tmp_path), "--task", "translation", "--json").stdout)
    said = f"{tmp_path}: en is translated to de; for the reverse, --direction de-en"
    assert said in report["complaints"]
    report = json.loads(run(str(tmp_path), "--task", "translation", "--direction", "de-en", "--json").stdout)
    assert report["shown"][0][0].startswith("de ")
    assert said not in report["complaints"]
    result = run(str(tmp_path), "--task", "translation", "--direction", "german")
    assert "--direction needs FROM-TO, such as de-en, got 'german'; " in result.stderr
    reviews = "".join(f"{sentence(n)}\t{n % 2}\n" for n in range(60))
    (tmp_path / "train.tsv").write_text("review\tclass\n" + reviews)
    report = json.loads(run(str(tmp_path), "--task", "classification", "--json").stdout)
    assert f"{tmp_path}: text is the column review, label is the column class" in report["complaints"]


def test_bad_records_are_skipped_if_asked(run, tmp_path):
    lines = ["text\tlabel", *(f"{sentence(n)}\t{n % 2}" for n in range(60)), "broken", " \t1", " \t0"]
    (tmp_path / "train.tsv").write_text("\n".join(lines) + "\n")
    (tmp_path / "dev.tsv").write_text("\n".join(lines[:9]) + "\n")
    assert "train.tsv, line 62: 1 field" in run(str(tmp_path), "--task", "classification").stderr
    report = json.loads(run(str(tmp_path), "--task", "classification", "--skip-bad", "--json").stdout)
    assert [split["examples"] for split in report["splits"]] == [60, 8]
    assert any("train.tsv: 1 broken lines left out" in line for line in report["complaints"])
    assert any("train: 2 records left out that cannot be used" in line for line in report["complaints"])


@pytest.mark.parametrize(("choice", "counted"), [("truncate", "truncated"), ("drop", "dropped")])
def test_what_is_too_long_is_counted(run, parallel, choice, counted):
    options = ["--max-length", "3", "--over-long", choice, "--json"]
    report = json.loads(run(str(parallel), "--task", "translation", *options).stdout)
    assert report["splits"][0][counted] == 60
    assert any(f"too long, and {counted}" in line for line in report["complaints"])


def test_an_unknown_choice(run, parallel):
    result = run(str(parallel), "--task", "translation", "--over-long", "cut")
    assert "--over-long must be one of truncate, drop, got 'cut'" in result.stderr
