"""Rows come back bit by bit, in less room."""

import numpy as np

from synthattn.training.packed_rows import packed_rows, unpacked_rows

RANDOM = np.random.default_rng(0)


def test_rows_come_back_bit_by_bit():
    shared = RANDOM.normal(size=50).astype(np.float32).astype(np.float64)
    rows = {
        "perplexity": np.stack([shared, np.arange(50.0), RANDOM.normal(size=50)], axis=1),
        "bits": np.stack([shared, np.full(50, -0.0), np.full(50, np.nan), np.full(50, np.inf)], axis=1),
        "other examples": RANDOM.normal(size=(7, 1)),
        "one number each": np.ones(3),
    }
    packed = packed_rows(rows)
    again = unpacked_rows(packed)
    assert list(again) == list(rows)
    for name, values in rows.items():
        assert again[name].tobytes() == np.ascontiguousarray(values).tobytes()
        assert again[name].shape == values.shape


def test_a_column_that_two_metrics_share_is_kept_once():
    column = RANDOM.normal(size=(1000, 1))
    once, twice = packed_rows({"a": column}), packed_rows({"a": column, "b": column})
    room = [sum(values.nbytes for name, values in found.items() if "columns" in name) for found in (once, twice)]
    assert room[0] == room[1] == 8000


def test_files_with_an_array_for_each_metric_are_still_read():
    rows = {"accuracy": np.ones((4, 1))}
    assert unpacked_rows(rows) == rows
