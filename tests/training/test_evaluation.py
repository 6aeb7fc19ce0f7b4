"""Scores against plain loops: one example at a time, one token at a time."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from training_helpers import LONGEST, data, settings, suite

from synthattn.data.spans import corrupt, noise_mask
from synthattn.tasks.encoding import examples
from synthattn.tasks.inputs import PairInputs
from synthattn.training import evaluation
from synthattn.training.evaluation import ModelVectors, evaluate, load_rows, metrics_of, score
from synthattn.training.model import build, configuration
from synthattn.training.prepare import SPAN_SEED, Prepared, encode_for_evaluation
from synthattn.training.run import decided_fields, prepare_data
from synthattn.training.settings import EvaluationSettings


class Case:
    """A task with a new model, whose words are all about as likely."""

    def __init__(self, folder: Path, task: str) -> None:
        self.settings = settings(folder, task)
        self.ready: Prepared = prepare_data(self.settings)
        config = configuration(self.settings.model, **decided_fields(self.ready))
        self.model: Any = build(config, self.ready.kind, 5).eval()
        self.tokenizer = self.ready.tokenizer
        self.part = self.ready.parts[0]

    def examples(self, split: str = "test") -> list[Any]:
        return list(examples(self.part.task, self.part.source, split))

    def evaluate(self, **options: Any) -> evaluation.Evaluation:
        return evaluate(self.model, self.tokenizer, self.ready.parts, EvaluationSettings(**options))

    def ids(self, text: str) -> list[int]:
        return self.tokenizer(text).input_ids


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory):
    made: dict[str, Case] = {}

    def get(task: str) -> Case:
        if task not in made:
            folder = tmp_path_factory.mktemp(task)
            made[task] = Case(suite(folder) if task == "glue" else data(folder, task), task)
        return made[task]

    return get


def nats_one_by_one(model: Any, piece: list[int]) -> list[float]:
    """Return the log-likelihood of each token of a piece, given the start token and the tokens before it."""
    found = []
    for n, token in enumerate(piece):
        with torch.no_grad():
            logits: Tensor = model(input_ids=torch.tensor([[0, *piece[:n]]])).logits[0, -1]
        found.append(-torch.log_softmax(logits.double(), -1)[token].item())
    return found


def likelihoods(one: Case, packed: bool) -> list[tuple[float, int]]:
    """Return the negative log-likelihood and the number of tokens of each text."""
    texts = [one.ids(example.target) for example in one.examples()]
    pieces = [[token for text in texts for token in text]] if packed else texts
    length = LONGEST - 1
    by_token = [
        nat
        for text in pieces
        for at in range(0, len(text), length)
        for nat in nats_one_by_one(one.model, text[at : at + length])
    ]
    found = []
    for text in texts:
        found.append((sum(by_token[: len(text)]), len(text)))
        by_token = by_token[len(text) :]
    return found


@pytest.mark.parametrize("task", ["language-modeling", "sentence-modeling"])
def test_likelihoods_are_those_of_a_plain_loop(case, task):
    one = case(task)
    rows = one.evaluate(batch_tokens=40).scored["token-perplexity"].rows
    expected = likelihoods(one, packed=task == "language-modeling")
    np.testing.assert_allclose(rows[:, 0], [nats for nats, _ in expected], rtol=1e-5)
    assert rows[:, 1].tolist() == [tokens for _, tokens in expected]
    texts = [example.target for example in one.examples()]
    assert rows[:, 2].tolist() == [len(text.split()) for text in texts]
    assert rows[:, 3].tolist() == [len(text.encode()) for text in texts]


def test_perplexities_are_those_of_the_sums(case):
    one = case("language-modeling")
    found = one.evaluate()
    total = sum(nats for nats, _ in likelihoods(one, packed=True))
    tokens, words, size = found.scored["token-perplexity"].rows.sum(0)[1:]
    assert found.scored["token-perplexity"].score.value == pytest.approx(math.exp(total / tokens), rel=1e-5)
    assert found.scored["word-perplexity"].score.value == pytest.approx(math.exp(total / words), rel=1e-5)
    assert found.scored["bits-per-byte"].score.value == pytest.approx(total / size / math.log(2), rel=1e-5)
    assert next(iter(found.scored)) == "token-perplexity"
    assert found.facts() == {
        "splits": {"language-modeling": "test"},
        "examples": 7,
        "unparsable": 0,
        "truncated": 0,
    }


@pytest.mark.parametrize("task", ["language-modeling", "sentence-modeling", "translation", "classification"])
def test_a_limit_takes_the_first_examples_and_changes_nothing_else(case, task):
    one = case(task)
    whole, some = one.evaluate(), one.evaluate(limit=3)
    assert some.examples == 3
    name = next(iter(whole.scored))
    assert len(some.scored[name].rows) == 3
    np.testing.assert_allclose(some.scored[name].rows, whole.scored[name].rows[:3], rtol=1e-5)
    assert some.predictions == whole.predictions[:3]


def test_batches_do_not_change_scores(case):
    for task in ("language-modeling", "classification", "span-corruption"):
        one = case(task)
        for name, scored in one.evaluate(batch_tokens=1).scored.items():
            assert scored.score.value == pytest.approx(one.evaluate().scored[name].score.value, rel=1e-5)


def test_span_corruption_is_scored_by_what_was_hidden(case):
    one = case("span-corruption")
    rows = one.evaluate().scored["token-perplexity"].rows
    flat = np.array([token for example in one.examples() for token in one.ids(example.target)])
    length = int(one.ready.train.lengths[0])
    first = one.tokenizer.convert_tokens_to_ids("<extra_id_0>")
    assert len(rows) == math.ceil(len(flat) / length)
    for n, row in enumerate(rows):
        text = flat[n * length : (n + 1) * length]
        mask = noise_mask(len(text), 0.15, 3.0, np.random.default_rng([SPAN_SEED, 0, n]))
        read, written = corrupt(text, mask, first, one.tokenizer.eos_token_id)
        total = 0.0
        for m, token in enumerate(written.tolist()):
            with torch.no_grad():
                logits = one.model(
                    input_ids=torch.from_numpy(read)[None], decoder_input_ids=torch.tensor([[0, *written[:m].tolist()]])
                ).logits[0, -1]
            total -= torch.log_softmax(logits.double(), -1)[token].item()
        assert row[0] == pytest.approx(total, rel=1e-5)
        assert row[1] == len(written)
    assert len(one.evaluate(limit=2).scored["token-perplexity"].rows) == 2


def test_classes_are_the_likeliest_of_each_text_alone(case):
    one = case("classification")
    found = one.evaluate(batch_tokens=30)
    names = one.part.task.labels.names
    right = 0
    for example, prediction in zip(one.examples(), found.predictions, strict=True):
        with torch.no_grad():
            chosen = int(one.model(input_ids=torch.tensor([one.ids(example.source)])).logits.argmax())
        assert prediction == {
            "source": example.source,
            "reference": example.target,
            "prediction": names[chosen],
        }
        right += names[chosen] == example.target
    assert found.scored["accuracy"].score.value == pytest.approx(100 * right / 7)


def greedy(one: Case, source: str, limit: int) -> str:
    read, written = torch.tensor([one.ids(source)]), [0]
    while len(written) <= limit and written[-1] != one.tokenizer.eos_token_id:
        with torch.no_grad():
            logits = one.model(input_ids=read, decoder_input_ids=torch.tensor([written])).logits[0, -1]
        written.append(int(logits.argmax()))
    return one.tokenizer.decode(written, skip_special_tokens=True)


def test_answers_are_those_of_a_plain_greedy_loop_in_the_order_of_the_source(case):
    one = case("translation")
    found = one.evaluate(batch_tokens=50, max_new_tokens=5)
    asked = one.examples()
    lengths = [len(example.source.split()) for example in asked]
    assert lengths != sorted(lengths), "or sorting by length would change nothing"
    for example, prediction in zip(asked, found.predictions, strict=True):
        assert (prediction["source"], prediction["reference"]) == (example.source, example.target)
        assert prediction["prediction"] == greedy(one, example.source, 5)
    assert len({one["prediction"] for one in found.predictions}) > 1, "or all would be the same in any order"


class Ids:
    """A stand-in for a tokenizer that shows token ids as they are."""

    def batch_decode(self, found: Tensor, skip_special_tokens: bool) -> list[str]:
        rows = [row[1 : row.index(1, 1) + 1] if 1 in row[1:] else row[1:] for row in found.tolist()]
        return [" ".join(map(str, row)) for row in rows]


def test_beams_find_likelier_answers_whatever_is_in_the_batch(case):
    one = case("translation")
    inputs = PairInputs(encode_for_evaluation(one.part, "test", one.tokenizer, LONGEST))

    def answers(numbers: list[int], beams: int) -> list[list[int]]:
        options = EvaluationSettings(max_new_tokens=4, beams=beams, length_penalty=0.0)
        texts = evaluation.write(one.model, Ids(), inputs.batch(numbers), options)
        return [[int(token) for token in text.split()] for text in texts]

    def likelihood(n: int, answer: list[int]) -> float:
        with torch.no_grad():
            batch = {"input_ids": torch.from_numpy(inputs.item(0, n)[0])[None], "labels": torch.tensor([answer])}
            return -float(one.model(**batch).loss) * len(answer)

    numbers = list(range(7))
    narrow, wide = answers(numbers, 1), answers(numbers, 4)
    assert wide == [answers([n], 4)[0] for n in numbers]
    assert narrow == [answers([n], 1)[0] for n in numbers]
    gains = [likelihood(n, wide[n]) - likelihood(n, narrow[n]) for n in numbers]
    assert sum(gains) > 0
    assert len(one.evaluate(max_new_tokens=4, beams=2, length_penalty_form="gnmt", limit=2).predictions) == 2


def test_gold_answers_score_perfectly(case):
    one = case("translation")
    asked = one.examples()
    found = score(one.part.task.metrics(), [example.target for example in asked], asked)
    for name, scored in found.items():
        assert scored.score.value == pytest.approx(100.0), name
        assert scored.low <= 100.0 + 1e-9
        assert scored.high >= 100.0 - 1e-9
    with pytest.raises(ValueError, match="nothing to score: the split has no examples"):
        score(one.part.task.metrics(), [], [])


def test_answers_that_say_nothing_are_counted_and_wrong(case, monkeypatch):
    one = case("glue")
    asked = [example for part in one.ready.parts for example in examples(part.task, part.source, "validation")]
    answers = iter([["perhaps", example.target][n % 2] for n, example in enumerate(asked)])
    monkeypatch.setattr(
        evaluation, "_write", lambda model, tokenizer, inputs, *rest: [next(answers) for _ in inputs.lengths]
    )
    found = one.evaluate()
    assert found.examples == len(asked) == 22
    assert found.unparsable == 11
    assert found.scored["mrpc accuracy"].score.value == pytest.approx(100 * 5 / 11)
    assert [one["prediction"] == "perhaps" for one in found.predictions] == [n % 2 == 0 for n in range(22)]


@pytest.mark.parametrize("limit", [None, 1])
def test_a_suite_is_named_by_task_and_metric_with_the_mean_first(case, limit):
    found = case("glue").evaluate(max_new_tokens=2, limit=limit)
    assert list(found.scored) == ["mean", "mrpc f1", "mrpc accuracy", "rte accuracy"]
    assert found.splits == {"rte": "validation", "mrpc": "validation"}
    for scored in found.scored.values():
        assert math.isfinite(scored.score.value)
        assert math.isfinite(scored.low)
        assert math.isfinite(scored.high)


def test_the_mean_of_a_suite_counts_every_task_once(case, monkeypatch):
    one = case("glue")
    # All right in the first task, all wrong in the second.
    right = [[example.target for example in examples(part.task, part.source, "validation")] for part in one.ready.parts]
    answers = iter([right[0], ["perhaps"] * 11])
    monkeypatch.setattr(evaluation, "_write", lambda *rest: next(answers))
    found = one.evaluate()
    assert one.ready.parts[0].task.name == "mrpc"
    assert found.scored["mean"].score.value == pytest.approx((100 + 0) / 2)
    assert found.scored["mean"].score.parts == {"mrpc f1": 100.0, "mrpc accuracy": 100.0, "rte accuracy": 0.0}
    assert "mean over mrpc, rte" in found.scored["mean"].score.definition


def test_dialogue_is_compared_by_vectors_of_the_model(case):
    one = case("dialogue")
    found = one.evaluate(max_new_tokens=3)
    names = [name for name in found.scored if "embedding" in name or "average" in name]
    assert names
    for name in names:
        assert "the model's own, of a word the mean of its tokens" in found.scored[name].score.definition
    vectors = ModelVectors(one.model, one.tokenizer)
    table = one.model.get_input_embeddings().weight.detach().numpy()
    ids = one.tokenizer("ant bee", add_special_tokens=False).input_ids
    assert len(ids) == 2
    np.testing.assert_allclose(vectors["ant bee"], table[ids].mean(0), rtol=1e-6)
    assert vectors["ant"] is vectors["ant"]
    with pytest.raises(KeyError):
        vectors[""]


def test_vectors_of_a_file_take_the_place_of_the_models(case, tmp_path: Path):
    file = tmp_path / "words.txt"
    file.write_text("ant 1.0 0.0\nbee 0.0 1.0\n! 1.0 1.0\ncat 0.5 0.5\n")
    found = case("dialogue").evaluate(max_new_tokens=3, vectors=str(file))
    assert any("words.txt" in scored.score.definition for scored in found.scored.values())


@pytest.mark.parametrize(
    "task", ["language-modeling", "span-corruption", "translation", "classification", "dialogue", "glue"]
)
def test_rows_on_disk_give_the_scores_again(case, task, tmp_path):
    one = case(task)
    found = one.evaluate(max_new_tokens=3)
    found.save(tmp_path)
    rows = load_rows(tmp_path)
    metrics = metrics_of(one.ready.parts, EvaluationSettings())
    assert list(metrics) == list(found.scored) == list(rows)
    for name, metric in metrics.items():
        assert metric.value(rows[name]) == pytest.approx(found.scored[name].score.value)
        assert metric.higher_is_better == found.scored[name].as_dict()["higher_is_better"]
    lines = (tmp_path / "predictions.jsonl").read_text().splitlines() if found.predictions else []
    assert len(lines) == len(found.predictions)
    assert sorted(entry.suffix for entry in tmp_path.iterdir()) == ([".jsonl", ".npz"] if lines else [".npz"])


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_as_before(case, training):
    one = case("sentence-modeling")
    before = {name: value.clone() for name, value in one.model.state_dict().items()}
    one.model.train(training)
    one.evaluate(limit=1)
    assert one.model.training is training
    with pytest.raises(ValueError, match="has no split 'tset'; did you mean test"):
        one.evaluate(split="tset")
    assert one.model.training is training
    one.model.eval()
    assert all(value.equal(before[name]) for name, value in one.model.state_dict().items())


def test_progress_ends_with_all(case):
    one = case("translation")
    told: list[tuple[int, int]] = []
    options = EvaluationSettings(batch_tokens=30, max_new_tokens=2)
    evaluate(one.model, one.tokenizer, one.ready.parts, options, lambda done, total: told.append((done, total)))
    assert told[-1] == (7, 7)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_what_is_too_long_is_scored_and_counted(tmp_path: Path):
    folder = data(tmp_path / "data", "translation")
    (folder / "test.tsv").write_text("en\tde\n" + "ant bee\tAmeise Biene\n" + "ant " * 40 + "\tAmeise\n")
    one = Case(folder, "translation")
    found = one.evaluate(max_new_tokens=3)
    assert found.truncated == 1
    assert found.examples == len(found.predictions) == 2
