"""Generated reports and conversations: what the target says can be found in the input."""

import os
import re
import subprocess
import sys

import pytest

from synthattn.data.builtin import BUILTINS, open_builtin
from synthattn.data.builtin.words import templates


def records(name: str) -> dict[str, list]:
    source = open_builtin(name)
    return {split: [record.fields for record in source.read(split)] for split in source.splits}


@pytest.fixture(scope="module")
def reports():
    return records("summaries")


@pytest.fixture(scope="module")
def chats():
    return records("dialogue")


@pytest.mark.parametrize("name", ["summaries", "dialogue"])
def test_sizes_and_splits(name, reports, chats):
    splits = reports if name == "summaries" else chats
    assert {split: len(found) for split, found in splits.items()} == {"train": 5000, "validation": 500, "test": 500}
    inputs = [repr({k: v for k, v in f.items() if k not in ("summary", "reply")}) for s in splits.values() for f in s]
    assert len(set(inputs)) == len(inputs)
    again = records(f"{name}?size=300")
    assert again["train"] == splits["train"][:300]
    assert again["test"] == splits["test"][:30]
    assert records(f"{name}?size=300&seed=1")["train"] != again["train"]


def test_summaries_state_what_the_reports_state(reports):
    for fields in (f for split in reports.values() for f in split):
        document, summary = fields["document"], fields["summary"]
        assert 4 <= len(re.findall(r"\.(?: |$)", document)) <= 8
        assert 1 <= len(re.findall(r"\.(?: |$)", summary)) <= 2
        assert len(summary) < 0.8 * len(document)
        first, *second = summary.split(". ")
        assert set(re.findall(r"\w+", first)) - {"in", "at"} <= set(re.findall(r"\w+", document))
        assert all(sentence in document for sentence in second)
        # The sentence with the name is the one with the day.
        name, day = re.match(r"\w+ \w+", summary), re.search(r"\w+day\b", summary)
        assert name
        assert day
        (event,) = [s for s in document.split(". ") if name[0] in s]
        assert day[0] in event


def test_a_summary_is_not_the_first_sentence_by_position(reports):
    leads = [f["document"].startswith(f["summary"].split(" ")[0]) for f in reports["train"]]
    assert 0.4 < sum(leads) / len(leads) < 0.8


def test_replies_follow_from_persona_and_history(chats):
    values = {value for topic in templates("topic") for value in topic[-1]}
    kinds = {"persona": 0, "history": 0}
    for fields in (f for split in chats.values() for f in split):
        persona, history, reply = " ".join(fields["persona"]), fields["history"], fields["reply"]
        assert 3 <= len(fields["persona"]) <= 5
        stated = [value for value in values if re.search(rf"\b{value}\b", reply)]
        if reply.startswith(("You ", "Yes, you ")):
            kinds["history"] += 1
            told = next(turn for turn in history if turn.startswith("I want to "))
            told = told.replace("my grandmother", "your grandmother")
            fact = re.search(r"(?:said that|that it is|want to) (.*?)(?: comes with you)?\.$", reply)
            assert fact
            assert fact[1] in told
        else:
            kinds["persona"] += 1
            assert stated
            assert any(re.search(rf"\b{value}\b", persona) for value in stated)
            if "Is it the same for you?" in history[-1]:
                said = any(re.search(rf"\b{value}\b", history[-1]) for value in stated)
                assert said == reply.startswith("Yes, ")
    assert min(kinds.values()) > 1000


def test_turns_alternate(chats):
    # The other one speaks first and last.
    assert all(len(fields["history"]) % 2 == 1 for split in chats.values() for fields in split)


def test_bytes_do_not_depend_on_the_process():
    code = (
        "import hashlib; from synthattn.data.builtin import open_builtin\n"
        "for name in ('grammar-de?size=300', 'summaries?size=300', 'dialogue?size=300'):\n"
        "    s = open_builtin(name)\n"
        "    content = repr([r for p in s.splits for r in s.read(p)]).encode()\n"
        "    print(hashlib.sha256(content).hexdigest(), s.fingerprint())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_fingerprints_tell_seeds_and_sizes_apart():
    names = ["grammar-de", "grammar-de?seed=1", "grammar-de?size=7", "summaries", "dialogue"]
    assert len({open_builtin(name).fingerprint() for name in names}) == len(names)
    assert open_builtin("grammar-de?seed=0&size=20000").fingerprint() == open_builtin("grammar-de").fingerprint()


def test_records_say_where_they_stand():
    source = open_builtin("grammar-de?size=20")
    records = list(source.read("train"))
    assert len(records) == 20
    assert records[16].where == "builtin:grammar-de, example 17"
    assert source.name == "grammar-de?size=20"
    assert "seed 0, 20 for training" in source.notes[0]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gramar-de", "there is no built-in data 'gramar-de'; did you mean grammar-de?"),
        ("zzz", f"there is no built-in data 'zzz'; choose from {', '.join(sorted(BUILTINS))}"),
        ("grammar-de?sise=3", "grammar-de has no option 'sise'; did you mean size?"),
        ("docs?seed=3", "docs has no option 'seed'; it has none"),
        ("grammar-de?size=many", "size of grammar-de must be a whole number, got 'many'"),
        ("grammar-de?size=0", "grammar-de needs a size of at least 1, got 0; such as grammar-de?size=1000"),
    ],
)
def test_errors(name, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        open_builtin(name)
    assert str(error.value) == message


def test_unknown_split():
    with pytest.raises(ValueError, match="has no split 'dev'; choose from test, train, validation"):
        next(open_builtin("grammar-de").read("dev"))
