"""Exponents of growth."""

from collections.abc import Mapping

import pytest
from sample_record import LENGTHS, sample_record

from synthattn.bench.growth import Growth, fit, growths
from synthattn.bench.record import BenchRecord, Case, Measurement


def grown(
    points: Mapping[int, tuple[float, float | None]], over: str = "length", mode: str = "eval", mask: str = "full"
) -> BenchRecord:
    """Seconds and megabytes of one contender, by size."""
    found = []
    for size, (seconds, megabytes) in points.items():
        batch, length = (3, size) if over == "length" else (size, 7)
        case = Case("layer", batch, length, mode, mask)
        found.append(Measurement("random", case, seconds, 0.0, megabytes=megabytes))
    return BenchRecord(measurements=found)


def only(record: BenchRecord, over: str = "length") -> Growth:
    (found,) = growths(record, over)
    return found


@pytest.mark.parametrize("over", ["length", "batch"])
@pytest.mark.parametrize(("time", "memory"), [(1.0, 2.0), (1.37, 0.5), (2.0, 0.0)])
def test_power_laws_are_found(over, time, memory):
    points = {size: (3e-5 * size**time, 5.0 * size**memory) for size in (2, 512, 1024, 4096, 8192)}
    growth = only(grown(points, over), over)
    assert growth.time is not None
    assert growth.memory is not None
    for found, exponent in ((growth.time, time), (growth.memory, memory)):
        assert found.exponent == pytest.approx(exponent, abs=1e-9)
        assert found.last == pytest.approx(exponent, abs=1e-9)
    assert growth.held == Case("layer", *((3, 0) if over == "length" else (0, 7)))


def test_short_inputs_count_only_where_long_ones_are_few():
    flat = {64: 1.0, 128: 1.0, 256: 1.0}
    long = only(grown({size: (y, None) for size, y in (flat | {512: 1.0, 1024: 2.0, 2048: 4.0}).items()})).time
    assert long is not None
    assert long.exponent == pytest.approx(1.0, abs=1e-9)
    assert long.start == 512
    few = only(grown({size: (y, None) for size, y in (flat | {512: 1.0, 1024: 2.0}).items()})).time
    assert few is not None
    assert few.exponent < 0.5
    assert few.start == 64
    # Batches are not lengths: none is short.
    batch = only(
        grown({size: (y, None) for size, y in (flat | {512: 1.0, 1024: 2.0, 2048: 4.0}).items()}, "batch"), "batch"
    )
    assert batch.time is not None
    assert batch.time.start == 64


def test_the_last_doubling_is_a_doubling():
    found = fit([(100, 1.0), (200, 8.0), (300, 9.0), (400, 16.0)])
    assert found is not None
    assert found.last == pytest.approx(1.0, abs=1e-9)
    # Where there is none, all that there is.
    found = fit([(10, 1.0), (11, 3.0), (12, 1.2)])
    assert found is not None
    assert found.last == pytest.approx(1.0, abs=1e-9)


def test_memory_that_is_noise_is_left_out():
    noise = {512: (1.0, 0.0), 1024: (1.0, 0.99), 2048: (1.0, None)}
    good = {4096: (1.0, 1.0), 8192: (1.0, 2.0), 16384: (1.0, 4.0)}
    assert only(grown(noise)).memory is None
    found = only(grown(noise | good)).memory
    assert found is not None
    assert found.exponent == pytest.approx(1.0, abs=1e-9)
    assert found.start == 4096


def test_two_points_are_no_series():
    assert growths(grown({512: (1.0, None), 1024: (2.0, None)}), "length") == []
    assert fit([(1, 1.0), (2, 2.0)]) is None


def test_cases_that_differ_in_more_are_apart():
    points = {size: (float(size), None) for size in (512, 1024, 2048)}
    record = grown(points)
    for more in ({"mode": "train"}, {"mask": "causal"}):
        record.measurements += grown(points, **more).measurements
    record.measurements += [Measurement("dense", Case("layer", 3, 512), 1.0, 0.0)]
    assert [(g.held.mode, g.held.mask) for g in growths(record, "length")] == [
        ("eval", "full"),
        ("train", "full"),
        ("eval", "causal"),
    ]


def test_points_are_in_order_and_a_later_measurement_counts():
    record = grown({2048: (4.0, None), 512: (9.0, None), 1024: (2.0, None)})
    record.measurements += grown({512: (1.0, None)}).measurements
    growth = only(record)
    assert [(growth.size(p), p.seconds) for p in growth.points] == [(512, 1.0), (1024, 2.0), (2048, 4.0)]


def test_the_sample_has_both_series():
    record = sample_record()
    assert {len(g.points) for g in growths(record, "length")} == {len(LENGTHS)}
    assert {g.held.batch for g in growths(record, "length")} == {1}
    assert {g.held.length for g in growths(record, "batch")} == {512}
