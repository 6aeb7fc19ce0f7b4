"""Tokenizers: T5's ids, nothing lost on the way there and back, trained once."""

import random
import unicodedata

import pytest
import sentencepiece
from transformers import AutoTokenizer

from synthattn.data import tokenizers
from synthattn.data.tokenizers import cached_tokenizer, train_tokenizer

pytestmark = pytest.mark.unchecked

LINE = "the a man woman dog runs walks über Straße café naïve don't well-known 3.14 (yes) “quoted” house , . ! ?"
WORDS = LINE.split()


def texts(count: int = 2000, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 12))) for _ in range(count)]


@pytest.fixture(scope="module", params=["unigram", "bytes", "words"])
def trained(request):
    return request.param, train_tokenizer(request.param, texts(), 400)


def normal(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).split())


def test_the_ids_of_t5(trained):
    _, tokenizer = trained
    size = len(tokenizer)
    assert size <= 400
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id) == (0, 1, 2)
    assert tokenizer.convert_tokens_to_ids("<extra_id_0>") == size - 1
    assert tokenizer.convert_tokens_to_ids("<extra_id_99>") == size - 100
    assert tokenizer("the man").input_ids[-1] == 1
    assert tokenizer("the <extra_id_0> man", add_special_tokens=False).input_ids.count(size - 1) == 1


def test_there_and_back(trained):
    kind, tokenizer = trained
    for text in texts(300, seed=5):
        ids = tokenizer(text).input_ids
        assert tokenizer.decode(ids, skip_special_tokens=True) == text, kind


def test_spaces_before_punctuation_stay(trained):
    """transformers would write "dog ." as "dog.", and BLEU would count it."""
    _, tokenizer = trained
    assert (
        tokenizer.decode(tokenizer("the dog . the man ?").input_ids, skip_special_tokens=True) == "the dog . the man ?"
    )


def test_unigram_agrees_with_sentencepiece(monkeypatch):
    """The tokenizer gives SentencePiece's own pieces, and the original text back, on unseen texts."""
    models = []
    processor = sentencepiece.SentencePieceProcessor

    def keep(**options):
        models.append(processor(**options))
        return models[-1]

    monkeypatch.setattr(sentencepiece, "SentencePieceProcessor", keep)
    tokenizer = train_tokenizer("unigram", texts(), 300)
    (model,) = models
    for text in [*texts(1000, seed=9), "  two  spaces ", "tab\there", "ﬁne ½", "mañana"]:
        ids = model.encode(normal(text))
        assert tokenizer(text, add_special_tokens=False).input_ids == ids
        if 2 not in ids:
            assert tokenizer.decode(ids) == model.decode(ids) == normal(text)


def test_what_is_unknown(trained):
    kind, tokenizer = trained
    ids = tokenizer("the 中 dog", add_special_tokens=False).input_ids
    assert (2 in ids) == (kind != "bytes")
    if kind == "bytes":
        assert tokenizer.decode(ids) == "the 中 dog"


def test_words_know_their_own_unknown_word():
    """Penn Treebank writes rare words as <unk> in the text."""
    tokenizer = train_tokenizer("words", ["the <unk> dog N", "a <unk> man"], 120)
    assert tokenizer("the <unk> dog", add_special_tokens=False).input_ids[1] == 2
    assert sorted(tokenizer.get_vocab().values()) == list(range(len(tokenizer)))


def test_long_texts_are_not_left_out():
    """SentencePiece skips lines of more than 4192 bytes in silence."""
    long = " ".join(["zebra"] * 5000)
    tokenizer = train_tokenizer("unigram", [long, *texts(200)], 300)
    assert len(tokenizer("zebra", add_special_tokens=False).input_ids) <= 3
    pieces = list(tokenizers._pieces(long))
    assert " ".join(pieces) == long
    assert max(len(piece.encode()) for piece in pieces) <= tokenizers.LONGEST_PIECE


@pytest.mark.parametrize("kind", ["unigram", "bytes", "words"])
def test_of_large_data_the_first_texts_are_read(kind, monkeypatch):
    some = texts(300)

    def endless():
        yield from some
        raise AssertionError("read too far")

    whole = train_tokenizer(kind, some, 380).backend_tokenizer.to_str()
    monkeypatch.setattr(tokenizers, "MOST_TEXT", sum(map(len, some)))
    assert train_tokenizer(kind, endless(), 380).backend_tokenizer.to_str() == whole


@pytest.mark.parametrize("kind", ["unigram", "bytes", "words"])
def test_trained_once(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("SYNTHATTN_CACHE", str(tmp_path))
    first, folder = cached_tokenizer(kind, texts(300), 380, "some fingerprint")
    assert (folder / "tokenizer.json").is_file()

    def refuse():
        raise AssertionError("trained again")
        yield

    again, same = cached_tokenizer(kind, refuse(), 380, "some fingerprint")
    assert same == folder
    loaded = AutoTokenizer.from_pretrained(folder)
    for text in texts(50, seed=3):
        assert first(text).input_ids == again(text).input_ids == loaded(text).input_ids
        assert loaded.decode(loaded(text).input_ids, skip_special_tokens=True) == text
    with pytest.raises(AssertionError, match="trained again"):
        cached_tokenizer(kind, refuse(), 390, "some fingerprint")
    monkeypatch.setattr(tokenizers, "version", lambda library: "another release")
    with pytest.raises(AssertionError, match="trained again"):
        cached_tokenizer(kind, refuse(), 380, "some fingerprint")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("unigram", texts(5), 50), "a vocabulary of 50 is too small for unigram; 104 is the least"),
        (("bytes", texts(5), 300), "a vocabulary of 300 is too small for bytes; 359 is the least"),
        (("wordpiece", texts(5), 500), "tokenizer must be one of unigram, bytes, words, got 'wordpiece'"),
        (("words", ["", "  "], 500), "there is no text to train a tokenizer on"),
        (("unigram", ["abcdefghijklmnopqrstuvwxyz"], 105), "SentencePiece cannot make 105 tokens of these texts"),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=message) as caught:
        train_tokenizer(*arguments)
    assert "\n" not in str(caught.value)
