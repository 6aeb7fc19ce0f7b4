"""Train tokenizers on a task's own texts, with T5's ids: 0 padding, 1 end, 2 unknown, sentinels last.

Tokenizers are saved as ``tokenizer.json``, which ``transformers.AutoTokenizer`` reads without any other library.
"""

import contextlib
import io
import re
import tempfile
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, get_args

from synthattn.data.cache import cached_folder, key
from synthattn.saved_file import one_line, read_json

TokenizerKind = Literal["unigram", "bytes", "words"]

PAD, END, UNKNOWN = "<pad>", "</s>", "<unk>"
SENTINELS = [f"<extra_id_{n}>" for n in reversed(range(100))]
"""Sentinels in the order of their ids: the first sentinel of a text has the highest id."""

TOKENIZER = "tokenizer.json"

LONGEST_PIECE = 4000
"""Maximum number of bytes of a line; SentencePiece silently skips longer ones in training."""


MOST_TEXT = 2_000_000_000
"""Maximum number of characters read for a tokenizer: all of WMT'14 English to German, a little of C4."""


def train_tokenizer(kind: TokenizerKind, texts: Iterable[str], vocab_size: int) -> Any:
    """Train a tokenizer and return it as ``PreTrainedTokenizerFast``.

    Args:
        kind: ``"unigram"`` (SentencePiece, as T5), ``"bytes"`` (byte-level BPE: fast, without unknown tokens) or
            ``"words"`` (split at spaces, for tokenised texts).
        texts: training texts; only the first ``MOST_TEXT`` characters are read.
        vocab_size: maximum number of tokens, the 100 sentinels included.
    """
    if kind not in get_args(TokenizerKind):
        raise ValueError(f"tokenizer must be one of {', '.join(get_args(TokenizerKind))}, got {kind!r}")
    smallest = len(SENTINELS) + 3 + (256 if kind == "bytes" else 1)
    if vocab_size < smallest:
        raise ValueError(f"a vocabulary of {vocab_size} is too small for {kind}; {smallest} is the least")
    train = {"unigram": _unigram, "bytes": _bytes, "words": _words}[kind]
    return _finish(train(_training_texts(texts), vocab_size - len(SENTINELS)))


def cached_tokenizer(
    kind: TokenizerKind, texts: Iterable[str], vocab_size: int, fingerprint: str, columns: str = ""
) -> tuple[Any, Path]:
    """Return a tokenizer that is trained once for texts of this fingerprint, and its folder."""

    def make(folder: Path) -> None:
        train_tokenizer(kind, texts, vocab_size).save_pretrained(folder)

    # Another release of the training library may choose other tokens for the same texts.
    trainer = version("sentencepiece" if kind == "unigram" else "tokenizers")
    folder = cached_folder("tokenizers", key("2", kind, trainer, vocab_size, fingerprint, columns), make)
    return load_tokenizer(folder), folder


def load_tokenizer(folder: Path) -> Any:
    """Load a tokenizer from ``tokenizer.json`` without running code from the folder."""
    from transformers import AutoTokenizer

    file = folder / TOKENIZER
    if not file.is_file():
        raise ValueError(f"{folder} holds no {TOKENIZER}; copy the folder again")
    for each in (file, folder / "tokenizer_config.json"):
        if each.is_file() and not isinstance(found := read_json(each), dict):
            raise ValueError(f"{each} must hold an object, got a {type(found).__name__}; copy it again")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        tokenizer("a text")
    except Exception as error:  # tokenizers raises plain exceptions
        raise ValueError(f"{file} cannot be used: {one_line(error)}; copy the folder again") from error
    if tokenizer.eos_token_id is None:
        raise ValueError(f"{file} has no end token, which texts need; write eos_token into tokenizer_config.json")
    return tokenizer


def _training_texts(texts: Iterable[str]) -> Iterator[str]:
    """Yield the texts that are not blank, up to ``MOST_TEXT`` characters."""
    size, some = 0, False
    for text in texts:
        if text.strip():
            some = True
            yield text
        size += len(text)
        if size >= MOST_TEXT:
            break
    if not some:
        raise ValueError("there is no text to train a tokenizer on")


def _normalizer() -> Any:
    from tokenizers import Regex, normalizers

    return normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()])


def _unigram(texts: Iterator[str], vocab_size: int) -> Any:
    import sentencepiece
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    normalizer = _normalizer()
    trained = io.BytesIO()
    sentences = _distinct(piece for text in texts for piece in _pieces(normalizer.normalize_str(text)))
    with contextlib.ExitStack() as stack:
        characters: set[str] = set()
        try:
            file = stack.enter_context(tempfile.NamedTemporaryFile("w", encoding="utf-8", newline="\n"))
            for sentence in sentences:
                characters.update(sentence)
                file.write(sentence + "\n")
            file.flush()
        except OSError as error:
            raise ValueError(
                f"cannot write the texts for SentencePiece into {tempfile.gettempdir()}: {error.strerror or error}; "
                "make room there, or choose another folder with TMPDIR"
            ) from error
        _train_unigram(Path(file.name), trained, vocab_size, len(characters))
    model = sentencepiece.SentencePieceProcessor(model_proto=trained.getvalue())
    pieces = [(model.id_to_piece(n), model.get_score(n)) for n in range(model.get_piece_size())]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=2))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def _train_unigram(sentences: Path, trained: io.BytesIO, vocab_size: int, characters: int) -> None:
    import sentencepiece

    try:
        sentencepiece.SentencePieceTrainer.train(
            input=str(sentences),
            model_writer=trained,
            model_type="unigram",
            vocab_size=vocab_size,
            hard_vocab_limit=False,
            # The texts are normalised by the tokenizer's own normaliser, so that both see equal characters.
            normalization_rule_name="identity",
            # All characters, unless they are so many (as in Chinese) that no room for words is left.
            character_coverage=1.0 if characters < vocab_size // 4 else 0.9995,
            input_sentence_size=2_000_000,
            shuffle_input_sentence=True,
            pad_id=0,
            eos_id=1,
            unk_id=2,
            bos_id=-1,
            minloglevel=2,
        )
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        asked = vocab_size + len(SENTINELS)
        raise ValueError(
            f"SentencePiece cannot make {asked} tokens of these texts, {len(SENTINELS)} of them sentinels: {reason}"
        ) from error


def _pieces(text: str) -> Iterator[str]:
    """Yield the sentences of a text; long ones are split so that SentencePiece does not skip them."""
    for sentence in re.split(r"(?<=[.!?]) ", text):
        part: list[str] = []
        size = 0
        for word in sentence.split(" "):
            width = len(word.encode()) + 1
            if part and size + width > LONGEST_PIECE:
                yield " ".join(part)
                part, size = [], 0
            part.append(word)
            size += width
        yield " ".join(part)


def _distinct(sentences: Iterator[str]) -> Iterator[str]:
    """Yield each of the first million distinct sentences once; passages repeat for many questions."""
    seen: set[int] = set()
    for sentence in sentences:
        mark = hash(sentence)
        if mark not in seen:
            if len(seen) < 1_000_000:
                seen.add(mark)
            yield sentence


def _bytes(texts: Iterator[str], vocab_size: int) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(  # pyright: ignore[reportCallIssue]
        vocab_size=vocab_size,
        special_tokens=[PAD, END, UNKNOWN],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _words(texts: Iterator[str], vocab_size: int) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordLevel(unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordLevelTrainer(  # pyright: ignore[reportCallIssue]
        vocab_size=vocab_size, special_tokens=[PAD, END, UNKNOWN], show_progress=False
    )
    # The trainer would give two ids to a word that is a special token, such as Penn Treebank's <unk>.
    special = {PAD, END, UNKNOWN, *SENTINELS}
    tokenizer.train_from_iterator((" ".join(w for w in text.split() if w not in special) for text in texts), trainer)
    return tokenizer


def _finish(tokenizer: Any) -> Any:
    """Add sentinels at the end of the vocabulary, and the end token after every text."""
    from tokenizers import AddedToken, processors
    from transformers import PreTrainedTokenizerFast

    tokenizer.add_special_tokens([AddedToken(sentinel, normalized=False, special=True) for sentinel in SENTINELS])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {END}", pair=f"$A {END} $B {END}", special_tokens=[(END, tokenizer.token_to_id(END))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        additional_special_tokens=list(reversed(SENTINELS)),
        # BLEU must see the text as written: "a ." is not "a.".
        clean_up_tokenization_spaces=False,
    )
