"""Examples as batches: nothing lost, nothing twice, and the same for one process as for several."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st
from training_helpers import data, on_disk, prepared, split

from synthattn.data.batching import TokenBatches
from synthattn.data.encoded import cut, packed
from synthattn.data.open import open_source
from synthattn.data.spans import corrupt, noise_mask
from synthattn.tasks.inputs import (
    IGNORED,
    START,
    ClassInputs,
    MixedInputs,
    PairInputs,
    RunBatches,
    SpanInputs,
    TextInputs,
    mixed_order,
    span_inputs,
)

SOURCES = [[11, 12, 1], [13, 1], [14, 15, 16, 17, 1]]
TARGETS = [[21, 1], [22, 23, 24, 1], [25, 1]]


def test_pairs_are_padded_each_side_on_its_own(tmp_path: Path):
    pairs = PairInputs(split(tmp_path, SOURCES, TARGETS))
    assert pairs.lengths.tolist() == [3, 4, 5], "the longer side"
    batch = pairs.batch([1, 0])
    assert batch["input_ids"].tolist() == [[13, 1, 0], [11, 12, 1]]
    assert batch["attention_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]
    assert batch["labels"].tolist() == [[22, 23, 24, 1], [21, 1, IGNORED, IGNORED]]
    assert len(PairInputs(split(tmp_path, SOURCES, TARGETS), limit=2)) == 2


def test_a_token_that_is_the_padding_token_is_still_read(tmp_path: Path):
    batch = PairInputs(split(tmp_path, [[0, 0, 1], [5]], [[1], [1]])).batch([0, 1])
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]


def test_a_filler_is_read_and_not_predicted(tmp_path: Path):
    both = split(tmp_path, SOURCES, TARGETS)
    for inputs in (
        PairInputs(both),
        ClassInputs(split(tmp_path, SOURCES, [[0], [2], [1]])),
        TextInputs(cut(both.target, 9)),
    ):
        counts, filler = (inputs.collate([inputs[0, 1, yes]]) for yes in (True, False))
        assert filler["input_ids"].equal(counts["input_ids"])
        assert filler["labels"].shape == counts["labels"].shape
        assert set(filler["labels"].flatten().tolist()) == {IGNORED}


def test_classes_have_one_label_each(tmp_path: Path):
    classes = ClassInputs(split(tmp_path, SOURCES, [[0], [2], [1]]))
    assert classes.lengths.tolist() == [3, 2, 5]
    batch = classes.batch([2, 0, 1])
    assert batch["labels"].tolist() == [1, 0, 2]
    assert batch["input_ids"].shape == (3, 5)


def test_a_text_starts_with_the_start_token_which_is_not_predicted(tmp_path: Path):
    texts = TextInputs(cut(on_disk(tmp_path, SOURCES), 9))
    assert texts.lengths.tolist() == [4, 3, 6]
    batch = texts.batch([1, 0])
    assert batch["input_ids"].tolist() == [[START, 13, 1, 0], [START, 11, 12, 1]]
    assert batch["labels"].tolist() == [[IGNORED, 13, 1, IGNORED], [IGNORED, 11, 12, 1]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]


some_texts = st.lists(st.lists(st.integers(3, 99), max_size=12), min_size=1, max_size=8)


@given(some_texts, st.integers(1, 7))
@limits(max_examples=40, deadline=None)
def test_every_token_is_a_label_exactly_once(tmp_path_factory: pytest.TempPathFactory, texts, length):
    encoded = on_disk(tmp_path_factory.mktemp("texts"), texts)
    flat = [token for text in texts for token in text]
    for pieces in (packed(encoded, length), cut(encoded, length)):
        inputs = TextInputs(pieces)
        labels = [inputs.item(0, n)[1] for n in range(len(inputs))]
        assert [t for label in labels for t in label.tolist() if t != IGNORED] == flat
        assert all(len(label) <= length + 1 for label in labels)
        assert inputs.lengths.tolist() == [len(label) for label in labels]


@given(some_texts, st.integers(1, 7))
@limits(max_examples=40, deadline=None)
def test_cut_pieces_keep_to_their_text_and_packed_ones_are_full(
    tmp_path_factory: pytest.TempPathFactory, texts, length
):
    encoded = on_disk(tmp_path_factory.mktemp("texts"), texts)
    by_hand = [text[at : at + length] for text in texts for at in range(0, len(text), length)]
    short = cut(encoded, length)
    assert [piece.tolist() for piece in short] == by_hand
    full = packed(encoded, length)
    assert {len(piece) for piece in list(full)[:-1]} <= {length}
    assert short[-1].tolist() == by_hand[-1] if by_hand else len(full) == 0


# Span corruption


def test_spans_are_those_of_the_reference_and_others_in_every_epoch(tmp_path: Path):
    texts = packed(on_disk(tmp_path, [list(range(3, 90))]), 29)
    inputs = SpanInputs(texts, 400, 1, seed=5, density=0.3, mean_span=2.0)
    assert inputs.lengths.tolist() == [29, 29, 29]
    for epoch in (0, 1):
        for n in range(3):
            mask = noise_mask(29, 0.3, 2.0, np.random.default_rng([5, epoch, n]))
            for ours, theirs in zip(inputs.item(epoch, n), corrupt(texts[n], mask, 400, 1), strict=True):
                assert ours.tolist() == theirs.tolist()
    first, second = (inputs.item(epoch, 1)[0].tolist() for epoch in (0, 1))
    assert first != second
    assert inputs.item(0, 1)[0].tolist() == first, "the same when asked again"
    other = SpanInputs(texts, 400, 1, seed=6, density=0.3, mean_span=2.0)
    assert other.item(0, 1)[0].tolist() != first


class Vocabulary:
    eos_token_id = 1

    def convert_tokens_to_ids(self, token: str) -> int:
        assert token == "<extra_id_0>"
        return 499


@pytest.mark.parametrize("longest", [3, 7, 30, 64, 512])
def test_inputs_of_span_corruption_fit(tmp_path: Path, longest: int):
    inputs = span_inputs(on_disk(tmp_path, [list(range(3, 300))] * 3), longest, Vocabulary(), 0)
    for n in range(len(inputs)):
        read, written = inputs.item(0, n)
        assert len(read) <= longest
        assert len(written) <= longest
        assert (read >= 300).sum() <= 100


def test_too_many_sentinels_are_refused(tmp_path: Path):
    texts = on_disk(tmp_path, [list(range(3, 300))] * 20)
    with pytest.raises(ValueError, match=r"inputs of 2048 tokens need 11\d sentinels, the vocabulary has 100; make"):
        span_inputs(texts, 2048, Vocabulary(), 0)
    # Tokens that are hidden are rounded before spans are: a number of spans that is rounded once can be one less.
    for longest in (1808, 1810):
        try:
            read, _ = span_inputs(texts, longest, Vocabulary(), 0).item(0, 0)
        except ValueError as error:
            assert "need 101 sentinels" in str(error)
        else:
            assert (read >= 300).sum() == 100, f"inputs of {longest} tokens"


# Several tasks


def test_mixed_examples_are_those_of_their_parts(tmp_path: Path):
    (tmp_path / "other").mkdir()
    first = PairInputs(split(tmp_path, SOURCES, TARGETS))
    second = PairInputs(split(tmp_path / "other", [[31, 1]], [[41, 42, 1]]))
    mixed = MixedInputs([first, second, first], limit=2)
    assert len(mixed) == 7
    assert mixed.lengths.tolist() == [3, 4, 5, 3, 3, 4, 5]
    read = [mixed.item(0, n)[0].tolist() for n in range(7)]
    assert read == [*SOURCES, [31, 1], *SOURCES]
    assert mixed.batch([3, 6])["labels"].tolist() == [[41, 42, 1], [25, 1, IGNORED]]
    assert mixed.order is not None
    assert len(mixed.order(0, 0)) == 2 + 1 + 2


SIZE_LISTS = st.lists(st.integers(1, 40), min_size=1, max_size=5)


@given(SIZE_LISTS, st.none() | st.integers(1, 50), st.integers(0, 3))
@limits(max_examples=60, deadline=None)
def test_an_epoch_has_exactly_its_share_of_every_task(sizes, limit, seed):
    order = mixed_order(sizes, limit)
    starts = np.cumsum([0, *sizes])
    wanted = [size if limit is None else min(size, limit) for size in sizes]
    for epoch in (0, 1, 5):
        chosen = order(seed, epoch)
        counts = [int(((chosen >= low) & (chosen < high)).sum()) for low, high in pairwise(starts)]
        assert counts == wanted


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 3))
@limits(max_examples=60, deadline=None)
def test_a_large_task_is_gone_through_in_rounds(size, limit, seed):
    order = mixed_order([size, 3], limit)
    seen = [n for epoch in range(3 * size) for n in sorted(order(seed, epoch).tolist()) if n < size]
    counts = np.bincount(seen, minlength=size)
    assert counts.max() == counts.min() == 3 * min(size, limit), "after whole rounds, every example as often"
    # In every part of a round: no example comes again before all have come.
    drawn: list[int] = []
    for epoch in range(size):
        drawn += [n for n in order(seed, epoch).tolist() if n < size]
        if len(drawn) <= size:
            assert len(set(drawn)) == len(drawn)


def test_mixing_depends_on_the_seed_and_the_epoch_alone():
    order, again = mixed_order([50, 20], 30), mixed_order([50, 20], 30)
    assert order(1, 2).tolist() == again(1, 2).tolist()
    assert order(1, 2).tolist() != order(1, 3).tolist()
    assert order(1, 2).tolist() != order(2, 2).tolist()
    assert set(order(1, 0).tolist()) != set(order(2, 0).tolist()), "which examples come, too"


def test_mixed_batches_have_the_examples_of_the_order(tmp_path: Path):
    (tmp_path / "other").mkdir()
    first = PairInputs(split(tmp_path, SOURCES * 7, TARGETS * 7))
    second = PairInputs(split(tmp_path / "other", [[31, 1]] * 2, [[41, 1]] * 2))
    mixed = MixedInputs([first, second], limit=5)
    batches = TokenBatches(mixed.lengths, 12, 3, order=mixed.order)
    for epoch in range(3):
        batches.set_epoch(epoch)
        assert mixed.order is not None
        assert sorted(n for batch in batches for n in batch) == sorted(mixed.order(3, epoch).tolist())


# The batches of a run

lists_of_lengths = st.lists(st.integers(1, 9), min_size=1, max_size=30)


def keys(lengths: list[int], count: int, rank: int = 0, world: int = 1, seed: int = 3) -> list[list[tuple]]:
    return list(RunBatches(TokenBatches(lengths, 20, seed), count, rank, world))


@given(lists_of_lengths, st.integers(0, 25), st.sampled_from([2, 3]))
@limits(max_examples=60, deadline=None)
def test_all_processes_together_have_the_batches_of_one(lengths, count, world):
    alone = keys(lengths, count)
    shares = [keys(lengths, count, rank, world) for rank in range(world)]
    assert len(alone) == count == len(RunBatches(TokenBatches(lengths, 20, 3), count))
    assert {len(share) for share in shares} == {count}
    for n, batch in enumerate(alone):
        parts = [share[n] for share in shares]
        assert sorted(key for part in parts for key in part if key[2]) == sorted(batch)
        for part in parts:
            # Nobody waits for a process that has nothing to do: it gets one example, which does not count.
            assert part
            assert all(key[2] for key in part) or (len(part) == 1 and len(batch) < world)


@given(lists_of_lengths, st.integers(1, 25))
@limits(max_examples=30, deadline=None)
def test_epochs_follow_each_other_and_each_has_every_example_once(lengths, count):
    seen: dict[int, list[int]] = {}
    for batch in keys(lengths, count):
        assert len({epoch for epoch, _, _ in batch}) == 1
        for epoch, n, counts in batch:
            assert counts
            seen.setdefault(epoch, []).append(n)
    *whole, last = (sorted(seen[epoch]) for epoch in sorted(seen))
    assert sorted(seen) == list(range(len(seen)))
    assert all(numbers == list(range(len(lengths))) for numbers in whole)
    assert len(set(last)) == len(last)


def test_the_order_of_a_run_is_that_of_its_seed():
    lengths = np.random.default_rng(0).integers(1, 9, 40).tolist()
    assert keys(lengths, 30) == keys(lengths, 30)
    assert keys(lengths, 30) != keys(lengths, 30, seed=4)
    batches = RunBatches(TokenBatches(lengths, 20, 3), 30)
    assert list(batches) == list(batches), "also when it is gone through again"
    assert keys(lengths, 10) == keys(lengths, 30)[:10], "a longer run starts as a shorter one"


@given(lists_of_lengths, st.integers(1, 400))
@limits(max_examples=60, deadline=None)
def test_until_is_the_first_batch_with_as_many_tokens(lengths, tokens):
    found = RunBatches(TokenBatches(lengths, 20, 3), 0).until(tokens)
    read = [sum(lengths[n] for _, n, _ in batch) for batch in keys(lengths, found)]
    assert sum(read) >= tokens > sum(read[:-1])


@given(lists_of_lengths, st.integers(0, 25))
@limits(max_examples=60, deadline=None)
def test_seen_is_what_a_plain_loop_counts(lengths, count):
    batches = TokenBatches(lengths, 20, 3)
    tokens, epochs = RunBatches(batches, 99).seen(count)
    read = keys(lengths, count)
    assert tokens == sum(lengths[n] for batch in read for _, n, _ in batch)
    by_hand, left, epoch = 0.0, count, 0
    while left > 0:
        batches.set_epoch(epoch)
        by_hand += min(left, len(batches)) / len(batches)
        left -= len(batches)
        epoch += 1
    assert epochs == pytest.approx(by_hand)


# From settings


def test_what_is_prepared_is_what_is_in_the_files(tmp_path: Path):
    folder = data(tmp_path / "data", "translation")
    ready = prepared(folder, "translation")
    assert ready.facts["train"][0]["examples"] == ready.facts["train_inputs"] == len(ready.train) == 40
    batch = ready.train.batch([0])
    first = (folder / "train.tsv").read_text().splitlines()[1].split("\t")
    for side, text in zip(("input_ids", "labels"), first, strict=True):
        assert ready.tokenizer.decode(batch[side][0], skip_special_tokens=True) == text
        assert batch[side][0, -1] == ready.tokenizer.eos_token_id


def test_limits_of_examples_and_of_validation_tokens(tmp_path: Path):
    folder = data(tmp_path / "data", "translation")
    ready = prepared(folder, "translation", data__train_examples=5, training__evaluate_tokens=12)
    assert len(ready.train) == 5
    lengths = prepared(folder, "translation").validation.lengths
    assert ready.validation.lengths.sum() >= 12 > ready.validation.lengths[:-1].sum()
    assert ready.validation.lengths.tolist() == lengths[: len(ready.validation)].tolist()


def test_what_is_not_read_is_in_no_part_of_what_is_prepared(tmp_path: Path):
    folder = data(tmp_path / "data", "sentence-modeling")
    lines = (folder / "train.txt").read_text().splitlines()
    (folder / "train.txt").write_text("\n".join([*lines[:5], "zebra zebra"]))
    all_of_it = prepared(folder, "sentence-modeling")
    ready = prepared(folder, "sentence-modeling", data__read_examples=5)
    assert (len(all_of_it.train), len(ready.train)) == (6, 5)
    assert len(ready.validation) == len(all_of_it.validation)
    assert "zebra" in all_of_it.tokenizer.get_vocab()
    assert "zebra" not in ready.tokenizer.get_vocab()
    assert ready.facts["sources"] != all_of_it.facts["sources"]
    # Caches of earlier runs must stay of use.
    assert all_of_it.facts["sources"] == {str(folder): open_source(str(folder)).fingerprint()}
    fewer = prepared(folder, "sentence-modeling", data__read_examples=5, data__train_examples=3)
    assert len(fewer.train) == 3
    assert fewer.facts["tokenizer"] == ready.facts["tokenizer"]


def test_packed_texts_and_sentences_leave_a_place_for_the_start_token(tmp_path: Path):
    folder = data(tmp_path / "data", "language-modeling")
    packed, single = (prepared(folder, task) for task in ("language-modeling", "sentence-modeling"))
    assert set(packed.train.lengths.tolist()[:-1]) == {packed.longest}
    assert len(single.train) == 40
    assert single.train.lengths.max() <= single.longest
    assert packed.train.lengths.sum() - len(packed.train) == single.train.lengths.sum() - len(single.train)
