"""Metrics against implementations by others, or against plain loops."""

import gzip
import math
import random
import re
import string
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sacrebleu
from nltk.translate.meteor_score import single_meteor_score
from pycocoevalcap.cider.cider import Cider
from rouge_score.rouge_scorer import RougeScorer
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from synthattn.metrics import (
    F1,
    Accuracy,
    BitsPerByte,
    Bleu,
    BleuN,
    ChrF,
    CiderD,
    EmbeddingSimilarity,
    MacroF1,
    Matthews,
    Meteor,
    Metric,
    MultiRcExactMatch,
    MultiRcF1,
    Pearson,
    Perplexity,
    ReCoRDExactMatch,
    ReCoRDF1,
    Rouge,
    Rows,
    Spearman,
    TokenizedBleu,
    load_vectors,
)
from synthattn.metrics.averages import suite_average
from synthattn.metrics.corpus_vectors import corpus_vectors, save_vectors
from synthattn.metrics.vectors import check_vectors

CASES = range(200)
# Words that share stems, punctuation, compounds, numbers, and what is no ASCII.
LINE = (
    "the The a an cat cats run runs running runner happy happily happiness over, dog. well-known well - 3.5 1-2 x-y-z "
    "Straße über U.S. don't (yes) is are was quickly quick"
)
WORDS = LINE.split()
VECTORS = {
    word.lower(): vector
    for word, vector in zip(WORDS[:-4], np.random.default_rng(5).normal(size=(len(WORDS) - 4, 7)), strict=True)
} | {"zero": np.zeros(7)}


def text(generator: np.random.Generator, longest: int = 13) -> str:
    return " ".join(generator.choice(WORDS, size=generator.integers(longest + 1)))


def corpus(seed: int, references: int = 1) -> tuple[list[str], list[list[str]]]:
    """Predictions that share much with one of their references; some are empty."""
    generator = np.random.default_rng(seed)
    predictions, all_texts = [], []
    for _ in range(generator.integers(2, 8)):
        texts = [text(generator) for _ in range(generator.integers(1, references + 1))]
        words = texts[-1].split()
        kept = [word for word in words if generator.random() < 0.8]
        predictions.append(" ".join(kept + text(generator, 3).split()) if generator.random() < 0.9 else "")
        all_texts.append(texts)
    return predictions, all_texts


def streams(references: list[list[str]]) -> list[list[str | None]]:
    most = max(map(len, references))
    return [[texts[n] if n < len(texts) else None for texts in references] for n in range(most)]


def close(value: float, expected: float) -> bool:
    return value == pytest.approx(expected, rel=1e-9, abs=1e-9)


def best(score: Callable[[str, str], float], predictions: list[str], references: list[list[str]]) -> list[float]:
    """The score of each prediction for the reference that fits it best."""
    return [max(score(p, text) for text in texts) for p, texts in zip(predictions, references, strict=True)]


@pytest.mark.parametrize("seed", CASES)
def test_bleu_and_chrf_are_those_of_sacrebleu(seed):
    predictions, references = corpus(seed, 3)
    tokenize, n = ["13a", "intl", "char", "none"][seed % 4], 1 + seed % 4
    pairs: list[tuple[Metric, Any]] = [
        (ChrF(), sacrebleu.CHRF()),
        (BleuN(n), sacrebleu.BLEU(max_ngram_order=n)),
        (Bleu(tokenize), sacrebleu.BLEU(tokenize=tokenize)),
    ]
    for metric, expected in pairs:
        score, result = metric(predictions, references), expected.corpus_score(predictions, streams(references))
        assert score.value == result.score
        assert score.definition.endswith(f" sacrebleu, {expected.get_signature()}")
        if metric.name != "chrf":
            precisions = result.precisions[: n if metric.name == f"bleu-{n}" else 4]
            assert list(score.parts.values()) == [*precisions, result.bp]
            assert close(score.value, result.bp * math.prod(precisions) ** (1 / len(precisions)))


def test_tokenized_bleu_splits_compounds_and_does_not_smooth():
    metric = TokenizedBleu()
    assert metric.prepared("A well-known (rich-text) x-y-z - test.") == (
        "A well ##AT##-##AT## known ( rich ##AT##-##AT## text ) x ##AT##-##AT## y-z - test ."
    )
    assert metric(["a b c d f"], ["a b d c e"]).value == 0.0  # no 3-gram; smoothed it would be above 0
    assert Bleu()(["a b c d f"], ["a b d c e"]).value > 0.0
    # All n-grams but the last: the halves of the compound and the hyphen are 3 of 7 tokens.
    value = metric(["one two-three four five nine"], ["one two-three four five ten"]).value
    assert close(value, 100 * (6 / 7 * 5 / 6 * 4 / 5 * 3 / 4) ** 0.25)
    assert r"s/(\S)-(\S)/\1 ##AT##-##AT## \2/g" in metric.definition
    assert "smooth:none" in metric.definition


@pytest.mark.parametrize("seed", range(200))
def test_tokenized_bleu_is_bleu_of_tokens(seed):
    predictions, references = corpus(seed, 3)
    tokenizer = sacrebleu.BLEU(tokenize="13a").tokenizer

    def tokens(text: str) -> str:
        words = []
        for word in tokenizer(text).split():
            # The letter after a hyphen cannot be the letter before the next one.
            head, tail = word, ""
            if word == "x-y-z":
                head, tail = "x-y", "-z"
            if re.fullmatch(r"[^-]+-[^-]+", head):
                head = head.replace("-", " ##AT##-##AT## ")
            words.append(head + tail)
        return " ".join(words)

    expected = sacrebleu.BLEU(tokenize="none", smooth_method="none", force=True).corpus_score(
        [tokens(p) for p in predictions],
        streams([[tokens(r) for r in texts] for texts in references]),  # pyright: ignore[reportArgumentType]
    )
    assert TokenizedBleu()(predictions, references).value == expected.score


@pytest.mark.parametrize("kind", ["rouge1", "rouge2", "rougeL", "rougeLsum"])
@pytest.mark.parametrize("stemmer", [True, False])
def test_rouge_is_the_mean_of_rouge_score(kind, stemmer):
    scorer = RougeScorer([kind], use_stemmer=stemmer)
    for seed in range(25):
        predictions, references = corpus(seed, 3)
        expected = best(lambda p, r: scorer.score(r, p)[kind].fmeasure, predictions, references)
        assert close(Rouge(kind, stemmer)(predictions, references).value, 100 * float(np.mean(expected)))


def test_rouge_closed_form():
    score = Rouge("rouge1")(["cats running"], ["the cat runs fast"])
    assert (score.parts, score.name) == ({"precision": 100.0, "recall": 50.0}, "rouge1")
    assert close(score.value, 200 / 3)
    assert Rouge("rouge1", stemmer=False)(["cats running"], ["the cat runs fast"]).value == 0.0
    assert "rouge_score 0.1.2" in score.definition
    # The lines of the prediction are in another order: only ROUGE-Lsum takes them for sentences.
    swapped = ["c d\na b"], ["a b\nc d"]
    assert close(Rouge("rougeL")(*swapped).value, 50.0)
    assert close(Rouge("rougeLsum")(*swapped).value, 100.0)


class NoSynonyms:
    def synsets(self, word: str) -> list[str]:
        return []


@pytest.mark.parametrize("seed", CASES)
def test_meteor_is_nltk_without_synonyms(seed):
    predictions, references = corpus(seed, 3)
    no_synonyms: Any = NoSynonyms()
    expected = best(
        lambda p, r: single_meteor_score(r.split(), p.split(), wordnet=no_synonyms), predictions, references
    )
    assert Meteor().rows(predictions, references)[:, 0].tolist() == pytest.approx(expected, rel=1e-12)
    assert close(Meteor()(predictions, references).value, 100 * float(np.mean(expected)))


@pytest.mark.parametrize("m", [1, 2, 5])
def test_meteor_of_a_perfect_prediction(m):
    words = " ".join(string.ascii_lowercase[:m])
    assert close(Meteor()([words], [words.upper()]).value, 100 * (1 - 0.5 / m**3))


def test_meteor_closed_form():
    # 2 of 3 words match by stem, 2 of 4 are found, in two chunks.
    precision, recall = 2 / 3, 2 / 4
    expected = (1 - 0.5) * precision * recall / (0.9 * precision + 0.1 * recall)
    assert close(Meteor()(["cats x running"], ["z running the cat"]).value, 100 * expected)
    assert "METEOR (exact+stem)" in Meteor().definition


@pytest.mark.parametrize("seed", CASES)
def test_cider_is_pycocoevalcap(seed):
    predictions, references = corpus(seed, 3)
    references[0][0] += " cat"  # at least one reference with a word, as pycocoevalcap wants
    expected, each = Cider().compute_score(
        {n: [r.lower() for r in texts] for n, texts in enumerate(references)},
        {n: [p.lower()] for n, p in enumerate(predictions)},
    )
    assert CiderD().rows(predictions, references)[:, 0].tolist() == pytest.approx(each.tolist(), rel=1e-9, abs=1e-12)
    assert close(CiderD()(predictions, references).value, 100 * float(expected))


def test_cider_closed_forms():
    texts = ["a b c d", "e f g h i"]
    assert close(CiderD()(texts, texts).value, 1000.0)
    assert close(CiderD()(texts, [t.upper() for t in texts]).value, 1000.0)
    # Of the first example one reference of two is met. A word that all references have weighs nothing.
    assert close(CiderD()(texts, [[texts[0], ""], texts[1]]).value, 750.0)
    assert CiderD()(["a", "a"], ["a", "a"]).value == 0.0
    assert CiderD()(["a b c d"], ["a b c d"]).value == 0.0
    assert "pycocoevalcap CIDEr-D score x 100" in CiderD().definition


def loop_cosine(a: list[float], b: list[float]) -> float:
    product = sum(x * y for x, y in zip(a, b, strict=True))
    size = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(y * y for y in b))
    return product / size if size else 0.0


def loop_embedding(kind: str, prediction: str, reference: str) -> float:
    a, b = ([VECTORS[w].tolist() for w in t.lower().split() if w in VECTORS] for t in (prediction, reference))
    if not a or not b:
        return 0.0
    if kind == "average":
        return loop_cosine(*([sum(column) / len(side) for column in zip(*side, strict=True)] for side in (a, b)))
    if kind == "extrema":
        return loop_cosine(*([max(column, key=abs) for column in zip(*side, strict=True)] for side in (a, b)))
    one = sum(max(loop_cosine(x, y) for y in b) for x in a) / len(a)
    other = sum(max(loop_cosine(x, y) for x in a) for y in b) / len(b)
    return (one + other) / 2


@pytest.mark.parametrize("kind", ["average", "extrema", "greedy"])
@pytest.mark.parametrize("seed", range(70))
def test_embedding_similarity_is_a_plain_loop(kind, seed):
    predictions, references = corpus(seed, 3)
    predictions[0] += " zero unknownword"
    expected = best(lambda p, r: loop_embedding(kind, p, r), predictions, references)
    metric = EmbeddingSimilarity(kind, VECTORS, "seven random numbers")
    assert metric.rows(predictions, references)[:, 0].tolist() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    score = metric(predictions, references)
    assert close(score.value, 100 * sum(expected) / len(expected))
    assert score.name == f"embedding-{kind}"
    assert score.definition.endswith("vectors: seven random numbers")


def test_embedding_similarity_closed_forms():
    vectors = {"x": np.array([1.0, 0.0]), "y": np.array([0.0, 1.0]), "-x": np.array([-1.0, 0.0]), "0": np.zeros(2)}

    def value(kind: str, prediction: str, reference: str | list[str]) -> float:
        return EmbeddingSimilarity(kind, vectors, "two axes")([prediction], [reference]).value

    assert close(value("average", "x y", "x"), 100 / math.sqrt(2))
    assert value("average", "x -x", "x") == 0.0
    assert value("extrema", "x -x", "-x") == 100.0  # of two equally extreme values the negative one
    assert value("extrema", "x 0", "x") == 100.0
    assert close(value("greedy", "x y", "x"), 100 * (0.5 + 1) / 2)
    assert value("greedy", "x", ["y", "X"]) == 100.0
    for kind in ("average", "extrema", "greedy"):
        assert value(kind, "", "x") == value(kind, "x", "") == value(kind, "", "") == value(kind, "new", "new") == 0.0
        assert value(kind, "0", "x") == 0.0


@pytest.mark.parametrize("seed", CASES)
def test_classes_are_sklearn(seed):
    generator = np.random.default_rng(seed)
    classes = int(generator.integers(2, 5))
    n = int(generator.integers(1, 30))
    right = generator.integers(classes, size=n).tolist()
    said = np.where(generator.random(n) < 0.5, right, generator.integers(classes, size=n)).tolist()
    said = [None if generator.random() < 0.1 * (seed % 2) else label for label in said]
    numbers = [-1 if label is None else label for label in said]
    assert close(Accuracy()(said, right).value, 100 * accuracy_score(right, numbers))
    present = sorted(set(numbers) | set(right) - {-1})
    present = [label for label in present if label >= 0]
    macro = f1_score(right, numbers, labels=present, average="macro", zero_division=0)  # pyright: ignore[reportArgumentType]
    assert close(MacroF1()(said, right).value, 100 * float(macro))
    if len(set(right)) > 1 and len(set(numbers)) > 1:
        assert close(Matthews()(said, right).value, 100 * float(matthews_corrcoef(right, numbers)))
    # What a class is called does not matter.
    names = [None if label is None else f"class {label}" for label in said], [f"class {label}" for label in right]
    for metric in (Accuracy(), MacroF1(), Matthews()):
        assert metric(*names).value == metric(said, right).value
    positive = int(generator.integers(classes))
    expected = f1_score([r == positive for r in right], [p == positive for p in said], zero_division=0)  # pyright: ignore[reportArgumentType]
    score = F1(positive)(said, right)
    assert close(score.value, 100 * float(expected))
    precision, recall = score.parts["precision"], score.parts["recall"]
    assert close(score.value * (precision + recall), 2 * precision * recall)


def test_classes_closed_forms():
    assert Accuracy()([1, None, 0, 0], [1, 1, 0, 1]).value == 50.0
    score = F1()([1, 1, None, 0], [1, 0, 1, 1])
    assert close(score.value, 100 * 2 / (2 + 1 + 2))
    assert score.parts == {"precision": 50.0, "recall": pytest.approx(100 / 3)}
    assert close(MacroF1()(["a", None, "b"], ["a", "a", "b"]).value, 100 * (2 / 3 + 1) / 2)
    assert MacroF1()([None, None], ["a", "b"]).value == 0.0
    assert close(Matthews()([1, 1, 0, 0], [1, 0, 1, 0]).value, 0.0)
    assert Matthews()([1, 0, 1], [0, 1, 0]).value == -100.0


@pytest.mark.parametrize("metric", [Matthews(), Pearson(), Spearman()], ids=lambda m: m.name)
@pytest.mark.parametrize("constant", [[0.1, 0.1, 0.1], [None, None, None], [1, 1, 1]])
def test_no_correlation_with_a_constant(metric, constant):
    assert metric(constant, [1, 2, 3]).value == 0.0
    if None not in constant:
        assert metric([1, 2, 3], constant).value == 0.0


@pytest.mark.parametrize("seed", CASES)
def test_correlations_are_scipy(seed):
    generator = np.random.default_rng(seed)
    n = int(generator.integers(3, 40))
    # Fifths, so that many are equal, times a scale.
    right = generator.integers(0, 26, size=n) / 5
    said = np.round(right + generator.normal(size=n), 1) * 10.0 ** generator.integers(-3, 4)
    given: list[float | None] = said.tolist()
    if seed % 2:
        given[0], said[0] = None, -1.0
    for metric, oracle in ((Pearson(), pearsonr), (Spearman(), spearmanr)):
        expected: Any = oracle(said, right)
        assert close(metric(given, right.tolist()).value, 100 * float(expected.statistic))


def test_correlations_closed_forms():
    assert close(Pearson()([0, 1, 2], [5.0, 7.0, 9.0]).value, 100.0)
    assert close(Spearman()([1.0, 10.0, 100.0], [-1.0, -2.0, -3.0]).value, -100.0)
    # None is -1.0: the perfect order is broken by it, and it is told from a similarity of 0.
    assert close(Pearson()([None, 0.0, 1.0], [1.0, 2.0, 3.0]).value, 100.0)
    assert close(Spearman()([1.0, 2.0, None], [1.0, 2.0, 3.0]).value, -50.0)
    assert "a prediction that cannot be understood is -1.0" in Pearson().definition


@pytest.mark.parametrize("seed", CASES)
def test_multirc_is_sklearn_and_a_plain_set(seed):
    generator = np.random.default_rng(seed)
    questions = [f"q{generator.integers(6)}" for _ in range(generator.integers(1, 25))]
    references = [(q, int(generator.integers(2))) for q in questions]
    predictions = [
        (q, None if generator.random() < 0.05 else label if generator.random() < 0.8 else 1 - label)
        for q, label in references
    ]
    said, true = ([int(label == 1) for _, label in side] for side in (predictions, references))
    assert close(MultiRcF1()(predictions, references).value, 100 * f1_score(true, said, zero_division=0.0))  # pyright: ignore[reportArgumentType]
    wrong = {q for (q, label), pair in zip(predictions, references, strict=True) if (q, label) != pair}
    exact = 1 - len(wrong) / len(set(questions))
    assert close(MultiRcExactMatch()(predictions, references).value, 100 * exact)
    assert len(MultiRcF1().rows(predictions, references)) == len(set(questions))


def loop_normalized(answer: str) -> str:
    answer = "".join(c for c in answer.lower() if c not in string.punctuation)
    return " ".join(word for word in re.split(r"\s+", answer) if word and word not in ("a", "an", "the"))


def loop_f1(prediction: str, answer: str) -> float:
    left, common = answer.split(), 0
    for word in prediction.split():
        if word in left:
            left.remove(word)
            common += 1
    if not common:
        return 0.0
    precision, recall = common / len(prediction.split()), common / len(answer.split())
    return 2 * precision * recall / (precision + recall)


@pytest.mark.parametrize("seed", CASES)
def test_record_is_a_plain_loop(seed):
    predictions, references = corpus(seed, 3)
    for metric, score in ((ReCoRDF1(), loop_f1), (ReCoRDExactMatch(), str.__eq__)):
        expected = best(lambda p, r: score(loop_normalized(p), loop_normalized(r)), predictions, references)  # noqa: B023
        assert close(metric(predictions, references).value, 100 * float(np.mean(expected)))


def test_record_closed_forms():
    answers = ("The U.S.", "United States of America")
    assert ReCoRDExactMatch()(["us", "the United  States of America!", "America", None], [answers] * 4).value == 50.0
    # Nothing is left of an article, but no answer is not an article.
    assert ReCoRDExactMatch()(["a", None], ["The", "The"]).value == 50.0
    assert close(ReCoRDF1()(["us", "America", None, ""], [answers] * 4).value, 100 * (1 + 2 / 5) / 4)


def test_perplexities():
    # Three nats on average for 8 tokens, twice as much for a word, on 24 bytes.
    predictions = [(10.0, 6, 3, 20), (14.0, 2, 1, 4)]
    assert close(Perplexity("token")(predictions, [None] * 2).value, math.exp(3.0))
    assert close(Perplexity("word")(predictions, [None] * 2).value, math.exp(6.0))
    score = BitsPerByte()(predictions, [None] * 2)
    assert close(score.value, 1.0 / math.log(2))
    assert not score.higher_is_better
    assert not Perplexity().higher_is_better
    assert [Perplexity(per).name for per in ("token", "word")] == ["token-perplexity", "word-perplexity"]
    assert Perplexity()([(1e9, 1, 1, 1)], [None]).value == math.inf
    uniform = [(n * math.log(256), n, 1, n) for n in (3, 5, 7)]
    assert close(BitsPerByte()(uniform, [None] * 3).value, 8.0)
    assert close(Perplexity()(uniform, [None] * 3).value, 256.0)


def test_import_is_light():
    heavy = ["sacrebleu", "nltk", "rouge_score", "scipy", "sklearn", "transformers"]
    code = f"import synthattn.metrics, sys; print(*[m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""


PERFECT: list[Metric] = [Bleu(), TokenizedBleu(), ChrF(), BleuN(1), BleuN(4)]
PERFECT += [Rouge(kind) for kind in ("rouge1", "rouge2", "rougeL", "rougeLsum")]
PERFECT += [EmbeddingSimilarity(kind, VECTORS, "random") for kind in ("average", "extrema", "greedy")]
PERFECT += [ReCoRDF1(), ReCoRDExactMatch(), Accuracy(), MacroF1(), Matthews()]


@pytest.mark.parametrize("metric", PERFECT, ids=lambda m: m.name)
def test_the_reference_scores_100(metric):
    texts = ["The happy cat runs over, quickly.", "a well-known dog is running"]
    assert metric(texts, texts).value == pytest.approx(100.0)
    score = metric(texts, texts)
    assert score.name == metric.name
    assert score.definition == metric.definition


@pytest.mark.parametrize("metric", [*PERFECT, Meteor(), CiderD()], ids=lambda m: m.name)
def test_empty_predictions_score_0(metric):
    texts = ["The happy cat runs over, quickly.", "a well-known dog is running"]
    assert metric(["", ""], texts).value == 0.0


@pytest.mark.parametrize("metric", [*PERFECT[:14], Meteor(), CiderD()], ids=lambda m: m.name)
def test_one_reference_is_a_list_of_one(metric):
    predictions, references = corpus(3)
    alone = [texts[0] for texts in references]
    assert metric(predictions, references).value == metric(predictions, alone).value
    assert metric(predictions, [tuple(texts) for texts in references]).value == metric(predictions, alone).value


@pytest.mark.parametrize(
    ("score", "message"),
    [
        (lambda: Bleu()(["a"], []), "bleu: 1 predictions for 0 references"),
        (lambda: Bleu()([], []), "bleu: nothing to score"),
        (lambda: Bleu("14a")(["a"], ["a"]), "sacrebleu has no tokenizer '14a'; choose from none, zh, 13a, "),
        (lambda: BleuN(0), "n must be at least 1, got 0"),
        (lambda: ChrF()([None], ["a"]), "chrf: prediction 0 must be a text, got NoneType; give '' where there is none"),
        (lambda: Meteor()(["a"], [[]]), "meteor: reference 0 has no text; remove the example"),
        (lambda: Meteor()(["a"], [7]), "meteor: reference 0 must be a text or several, got int"),
        (lambda: CiderD()(["a"], [["a", 7]]), "cider: reference 0 must be a text, got int"),
        (lambda: Rouge("rouge9"), "unknown ROUGE 'rouge9'; choose from rouge1, rouge2, rougeL, rougeLsum"),
        (lambda: EmbeddingSimilarity("mean", {}, "x"), "unknown embedding similarity 'mean'; choose from average, "),
        (lambda: EmbeddingSimilarity("greedy", {}, "a.txt"), "needs vectors of words, a.txt has none"),
        (lambda: Perplexity("byte"), "per must be 'token' or 'word', got 'byte'"),
        (lambda: Perplexity()([(1.0, 2, 3)], [None]), "must be (nll, tokens, words, bytes), got 3 numbers"),
        (lambda: Perplexity()([(1.0, -2, 3, 4)], [None]), "prediction 0 has a negative number of tokens"),
        (lambda: Perplexity("word")([(1.0, 1, 0, 1)], [None]), "word-perplexity: 1 examples without a word"),
        (lambda: MacroF1()([1], [None]), "macro-f1: a reference is None; remove examples without a class"),
        (lambda: Pearson()([float("nan")], [1.0]), "pearson: prediction 0 is nan; give None for what is no number"),
        (lambda: MultiRcF1()([("a", 1)], [("b", 1)]), "f1a: prediction 0 is for question 'a', reference for 'b'"),
    ],
)
def test_errors_say_what_to_do(score: Callable[[], Any], message: str):
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        score()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("header", ["", "4 2\n"])
@pytest.mark.parametrize("ending", ["txt", "txt.gz"])
def test_vectors_are_read(tmp_path, header, ending):
    path = tmp_path / f"vectors.{ending}"
    content = (header + "cat 1 -2.5\n. . . 3e-1 4 \r\n\nüber 5 6\ncat 7 8\n").encode()
    path.write_bytes(gzip.compress(content, mtime=0) if ending.endswith("gz") else content)
    check_vectors(path)
    vectors = load_vectors(path)
    assert list(vectors) == ["cat", ". . .", "über"]
    assert [vector.tolist() for vector in vectors.values()] == [[1.0, -2.5], pytest.approx([0.3, 4.0]), [5.0, 6.0]]
    assert EmbeddingSimilarity("average", vectors, str(path))(["Über"], ["über"]).value == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("v.txt", b"cat 1 2\ndog 1\n", "v.txt, line 2: expected a word and 2 numbers, got 'dog 1'"),
        ("v.txt", b"cat 1 2\ndog 1 x\n", "v.txt, line 2: not all of 2 are numbers in 'dog 1 x'"),
        ("v.txt", b"cat 1 nan\n", "v.txt, line 1: not all of 2 numbers are finite in 'cat 1 nan'"),
        ("v.txt", b"2 3\ncat 1 2\n", "v.txt, line 2: expected a word and 3 numbers, got 'cat 1 2'"),
        ("v.txt", b"2 1\ncat 1\n", "v.txt: line 1 says 2 words, there are 1; the file is cut off or damaged"),
        ("v.txt", b"cat\n", "v.txt, line 1: expected a word and 1 numbers, got 'cat'"),
        ("v.txt", b"cat 1\n\xff\xfe 1\n", "v.txt, line 2: not UTF-8"),
        ("v.txt", b"", "v.txt: no word vectors"),
        ("v.gz", b"cat 1\n", "v.gz: cannot be read: Not a gzipped file"),
        ("v.gz", gzip.compress(b"cat 1\n" * 99, mtime=0)[:20], "v.gz: cannot be read: "),
        ("v.txt", None, "v.txt: cannot be read: No such file or directory"),
    ],
)
def test_broken_vectors_are_named_by_file_and_line(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(message)):
        load_vectors(tmp_path / name)
    with pytest.raises(ValueError, match=re.escape(message)):
        check_vectors(tmp_path / name)


def test_the_mean_of_a_suite_is_that_of_each_task_in_any_draw():
    """Rows of several tasks in any order, some drawn twice, some tasks not at all."""
    metrics: dict[tuple[str, str], Metric] = {
        ("mrpc", "f1"): F1(),
        ("mrpc", "accuracy"): Accuracy(),
        ("rte", "accuracy"): Accuracy(),
        ("stsb", "pearson"): Pearson(),
    }
    mean = suite_average(metrics)
    draw = np.random.default_rng(0)
    answers = {task: draw.integers(0, 2, (2, count)) for task, count in (("mrpc", 9), ("rte", 5), ("stsb", 7))}
    rows = [metrics[key].rows(*answers[key[0]].tolist()) for key in mean.keys]
    joined, tasks = mean.joined(rows), ["mrpc"] * 9 + ["rte"] * 5 + ["stsb"] * 7
    places = np.concatenate([np.arange(9), np.arange(5), np.arange(7)])
    for size in (1, 3, 21, 21, 60):
        drawn = draw.integers(0, len(joined), size)
        wanted = {}
        for key in mean.keys:
            own = [places[n] for n in drawn if tasks[n] == key[0]]
            if own:
                said, true = answers[key[0]][:, own].tolist()
                wanted[" ".join(key)] = metrics[key](said, true).value
        assert mean.parts(joined[drawn]) == pytest.approx(wanted)
        by_task: dict[str, list[float]] = {}
        for name, value in wanted.items():
            by_task.setdefault(name.split()[0], []).append(value)
        assert mean.value(joined[drawn]) == pytest.approx(np.mean([np.mean(values) for values in by_task.values()]))


# Word vectors from a corpus: words that stand in the same places are alike


def sentences(count: int = 400) -> list[str]:
    draw = random.Random(0)
    colours, animals, verbs = ["red", "blue", "grey"], ["dog", "cat", "cow"], ["sees", "hears"]
    pick = draw.choice
    return [
        f"The {pick(colours)} {pick(animals)} {pick(verbs)} a {pick(colours)} {pick(animals)}" for _ in range(count)
    ]


def test_words_of_a_kind_are_alike():
    found = {word: vector.tolist() for word, vector in corpus_vectors(sentences(), width=4).items()}
    assert loop_cosine(found["red"], found["blue"]) > 0.9
    assert loop_cosine(found["dog"], found["cow"]) > 0.9
    assert loop_cosine(found["red"], found["dog"]) < 0.7


def test_they_are_the_singular_vectors_of_the_information():
    """Against the whole decomposition, written down plainly."""
    texts = sentences(60)
    found = corpus_vectors(texts, width=3)
    words = list(found)
    counts = np.zeros((len(words), len(words)))
    for text in texts:
        line = text.lower().split()
        for i, one in enumerate(line):
            for j, other in enumerate(line):
                if 0 < abs(i - j) <= 4:
                    counts[words.index(one), words.index(other)] += 1 / abs(i - j)
    contexts = counts.sum(0) ** 0.75
    share = counts / counts.sum(1, keepdims=True)
    with np.errstate(divide="ignore"):
        information = np.maximum(np.log(share / (contexts / contexts.sum())), 0)
    left, values, _ = np.linalg.svd(information)
    expected = left[:, :3] * np.sqrt(values[:3])
    ours = np.array([found[word] for word in words])
    assert np.allclose(ours @ ours.T, expected @ expected.T, atol=1e-4)


def test_saved_vectors_can_be_read(tmp_path):
    found = corpus_vectors(sentences(50), width=5)
    save_vectors(found, tmp_path / "vectors.txt")
    again = load_vectors(tmp_path / "vectors.txt")
    assert set(again) == set(found)
    assert np.allclose(again["dog"], found["dog"], rtol=1e-4)


def test_too_few_words():
    with pytest.raises(ValueError, match="at least two words occur more than once"):
        corpus_vectors(["one two three"])


# The bootstrap, on data whose truth is known


def interval(metric: Metric, rows: Rows, samples: int = 1000) -> tuple[float, float]:
    low, high = np.quantile(metric.bootstrap(rows, samples), [0.025, 0.975])
    return float(low), float(high)


def test_interval_covers_the_truth():
    generator = np.random.default_rng(0)
    inside = 0
    for _ in range(300):
        low, high = interval(Accuracy(), (generator.random((150, 1)) < 0.7).astype(np.float64), samples=200)
        inside += low <= 70.0 <= high
    assert 0.90 <= inside / 300 <= 0.98


def test_interval_has_the_width_of_the_normal_approximation():
    low, high = interval(Accuracy(), np.repeat([[1.0], [0.0]], [700, 300], axis=0))
    assert (high - low) / (2 * 1.96 * 100 * (0.7 * 0.3 / 1000) ** 0.5) == pytest.approx(1.0, abs=0.1)


def test_draws_are_paired():
    """Two systems that differ by 10 points in every row differ by that in every draw."""
    rows = np.random.default_rng(4).random((50, 1))
    drawn = Accuracy().bootstrap(rows, 100)
    assert len(set(drawn.tolist())) == 100
    assert Accuracy().bootstrap(rows + 0.1, 100) - drawn == pytest.approx(np.full(100, 10.0))


LABELS = [0, 1, 1, 0, 1, 0, 0, 1] * 3
NOISY = [0, 1, 0, 0, 1, 1, None, 1] * 3
TEXTS = ["the cat runs over a dog", "happy dogs run", "is it so ?", "yes it is"] * 3
WORSE = ["the cat runs over it", "dogs run happy", "it is so !", "no it is not"] * 3


@pytest.mark.parametrize(
    ("metric", "predictions", "references"),
    [
        (F1(), NOISY, LABELS),
        (MacroF1(), NOISY, LABELS),
        (Matthews(), NOISY, LABELS),
        (Pearson(), NOISY, LABELS),
        (Spearman(), NOISY, LABELS),
        (Bleu(), WORSE, TEXTS),
        (ChrF(), WORSE, TEXTS),
        (MultiRcF1(), [(n // 2, p) for n, p in enumerate(NOISY)], [(n // 2, p) for n, p in enumerate(LABELS)]),
        (Perplexity("word"), [(5.0 + n, 3, 2, 9) for n in range(24)], [None] * 24),
    ],
    ids=lambda value: value.name if isinstance(value, Metric) else "",
)
def test_every_metric_can_be_drawn(metric, predictions, references):
    rows = metric.rows(predictions, references)
    low, high = interval(metric, rows, samples=200)
    assert low < metric.value(rows) < high
    # A sample of rows is worth what the metric says of the examples themselves.
    units = [0, 0, 3, 5, 7, 2]
    examples = units if len(rows) == len(predictions) else [n for unit in units for n in (2 * unit, 2 * unit + 1)]
    given = [predictions[n] for n in examples], [references[n] for n in examples]
    if isinstance(metric, MultiRcF1):
        given = tuple([(n // 2, label) for n, (_, label) in enumerate(side)] for side in given)
    assert metric.value(rows[units]) == pytest.approx(metric(*given).value)
