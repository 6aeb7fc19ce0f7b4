"""Batches: every example once, no batch too large, the same order for everybody; and texts on disk."""

import fcntl
import os
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthattn.data import cache
from synthattn.data.batching import TokenBatches, pad
from synthattn.data.encoded import Encoded, packed, write


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=300), st.integers(60, 400), st.integers(0, 5), st.integers(1, 9)
)
@settings(max_examples=60, deadline=None)
def test_every_example_once_and_no_batch_too_large(lengths, tokens, seed, window):
    sampler = TokenBatches(lengths, tokens, seed, window)
    batches = list(sampler)
    assert sorted(n for batch in batches for n in batch) == list(range(len(lengths)))
    assert all(len(batch) * max(lengths[n] for n in batch) <= tokens for batch in batches)
    assert len(sampler) == len(batches)


def test_the_order_is_that_of_the_seed_and_the_epoch():
    lengths = np.random.default_rng(0).integers(1, 50, 500)
    first, again, other = (TokenBatches(lengths, 400, seed) for seed in (1, 1, 2))
    assert first.batches() == again.batches() != other.batches()
    again.set_epoch(1)
    assert again.batches() != first.batches()
    again.set_epoch(0)
    assert again.batches() == first.batches()


def test_sorting_by_length_saves_padding():
    lengths = np.random.default_rng(0).integers(1, 100, 2000)
    sorted_within_all = TokenBatches(lengths, 1000, None).padding_share()
    sorted_within_some = TokenBatches(lengths, 1000, 1).padding_share()
    unsorted = TokenBatches(lengths, 1000, 1, window=1).padding_share()
    assert sorted_within_all <= sorted_within_some < unsorted
    by_hand = TokenBatches([3, 3, 5], 10, None)
    assert by_hand.batches() == [[0, 1], [2]]
    assert by_hand.padding_share() == 0.0
    assert TokenBatches([3, 5], 10, None).padding_share() == pytest.approx(2 / 10)


def test_workers_do_not_change_the_order():
    torch = pytest.importorskip("torch")
    lengths = np.random.default_rng(0).integers(1, 50, 200)
    data = list(range(200))
    seen = []
    for workers in (0, 2):
        loader = torch.utils.data.DataLoader(
            data, batch_sampler=TokenBatches(lengths, 300, 3), num_workers=workers, collate_fn=list
        )
        seen.append(list(loader))
    assert seen[0] == seen[1]


def test_errors():
    with pytest.raises(ValueError, match="an example has 70 tokens, a batch may have 64; allow more or shorten"):
        TokenBatches([3, 70], 64, 0)
    with pytest.raises(ValueError, match="there are no examples"):
        TokenBatches([], 64, 0)


def test_padding():
    padded = pad([np.array([1, 2, 3]), np.array([4])], 0)
    assert padded.tolist() == [[1, 2, 3], [4, 0, 0]]


@pytest.mark.parametrize("vocabulary", [100, 70_000])
def test_texts_come_back_from_disk(tmp_path, vocabulary):
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, vocabulary, rng.integers(0, 30)).tolist() for _ in range(500)]
    assert write(tmp_path, "train", iter(texts), vocabulary) == 500
    found = Encoded(tmp_path, "train")
    assert [text.tolist() for text in found] == texts
    assert found[-1].tolist() == texts[-1]
    assert found.lengths.tolist() == [len(text) for text in texts]
    assert isinstance(found.ids, np.memmap)
    flat = [token for text in texts for token in text]
    pieces = packed(found, 64)
    assert [token for piece in pieces for token in piece.tolist()] == flat
    assert {len(piece) for piece in list(pieces)[:-1]} == {64}
    with pytest.raises(IndexError):
        found[500]


def test_no_texts_at_all(tmp_path):
    assert write(tmp_path, "none", iter([]), 100) == 0
    assert len(Encoded(tmp_path, "none")) == 0
    assert len(packed(Encoded(tmp_path, "none"), 8)) == 0


def test_what_is_interrupted_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("SYNTHATTN_CACHE", str(tmp_path))

    def fail(folder):
        (folder / "half").write_text("made")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.cached_folder("things", "one", fail)
    assert list((tmp_path / "things").iterdir()) == []
    calls = []

    def make(folder):
        calls.append(1)
        (folder / "all").write_text("made")

    first, second = (cache.cached_folder("things", "one", make) for _ in range(2))
    assert calls == [1]
    assert first == second
    assert (first / "all").read_text() == "made"
    assert cache.key("a", 1) == cache.key("a", "1") != cache.key("a1")


def test_what_has_a_name_is_on_the_disk(tmp_path, monkeypatch):
    """A power cut right after the rename must not leave a folder of empty files, which would never be made again."""
    monkeypatch.setenv("SYNTHATTN_CACHE", str(tmp_path))
    synced = []

    def fsync(handle):
        assert not (tmp_path / "things" / "one").exists()
        synced.append(os.fstat(handle).st_ino)

    def make(folder):
        (folder / "part").mkdir()
        for name in ("one.bin", "part/two.bin"):
            (folder / name).write_text("made")

    monkeypatch.setattr(os, "fsync", fsync)
    folder = cache.cached_folder("things", "one", make)
    names = ("one.bin", "part/two.bin", "part", ".")
    assert [(folder / name).stat().st_ino for name in names] == synced


TWO = """
import sys, time
from pathlib import Path
from synthattn.data.cache import cached_folder
place = Path(sys.argv[1])

def make(folder):
    (place / sys.argv[2]).touch()
    while not (place / "go").exists():
        time.sleep(0.01)
    (folder / "made").write_text(sys.argv[2])

print((cached_folder("things", "one", make) / "made").read_text())
"""


def test_other_processes_wait_for_what_is_being_made(tmp_path, monkeypatch):
    monkeypatch.setenv("SYNTHATTN_CACHE", str(tmp_path / "cache"))

    def start(name: str) -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, "-c", TWO, str(tmp_path), name], stdout=subprocess.PIPE, text=True)

    with start("first") as first:
        while not (tmp_path / "first").exists():
            assert first.poll() is None
            time.sleep(0.01)
        with start("second") as second:
            with pytest.raises(subprocess.TimeoutExpired):
                second.wait(1.0)
            assert not (tmp_path / "second").exists()
            (tmp_path / "go").touch()
            assert [process.communicate(timeout=60)[0] for process in (first, second)] == ["first\n", "first\n"]
    assert not (tmp_path / "second").exists()
    assert [path.name for path in (tmp_path / "cache" / "things").iterdir()] == ["one"]


def test_without_locks_the_first_to_be_ready_counts(tmp_path, monkeypatch):
    """Some network file systems have no locks."""
    monkeypatch.setenv("SYNTHATTN_CACHE", str(tmp_path))

    def refuse(*_):
        raise OSError("no locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)

    def other(folder):
        (folder / "made").write_text("other")

    def make(folder):
        cache.cached_folder("things", "one", other)
        (folder / "made").write_text("own")

    assert (cache.cached_folder("things", "one", make) / "made").read_text() == "other"
    assert [path.name for path in (tmp_path / "things").iterdir()] == ["one"]
