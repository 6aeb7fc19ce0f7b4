import sys
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from synthattn.engine import memory_pool
from synthattn.engine.memory_pool import Pool

SIZE = 1031


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(memory_pool, "UNIT", 1)


@pytest.fixture
def pool():
    return Pool()


def make(pool: Pool, size: int = SIZE) -> torch.Tensor:
    return pool.empty((size,), torch.float32)


def test_memory_of_a_tensor_that_is_gone_is_used_again(pool):
    first = make(pool)
    place = first.data_ptr()
    del first
    again = pool.empty((1, SIZE - 5), torch.float32)
    assert again.data_ptr() == place
    assert again.shape == (1, SIZE - 5)
    assert again.is_contiguous()


@pytest.mark.parametrize(
    "alias", [lambda t: t[3:], lambda t: t.detach(), lambda t: t.data, lambda t: t.view(1, -1), lambda t: t.numpy()]
)
def test_memory_is_not_used_again_while_anything_reads_it(pool, alias):
    first = make(pool).fill_(3.0)
    place, other = first.data_ptr(), alias(first)
    del first
    second = make(pool).fill_(7.0)
    assert second.data_ptr() != place
    assert (torch.as_tensor(other) == 3.0).all()


def test_what_a_graph_has_saved_is_in_use(pool):
    weight = torch.ones(SIZE, requires_grad=True)
    saved = make(pool).fill_(3.0)
    place, loss = saved.data_ptr(), (weight * saved).sum()
    del saved
    make(pool).fill_(7.0)
    loss.backward()
    assert weight.grad is not None
    assert (weight.grad == 3.0).all()
    both = [make(pool), make(pool)]
    assert place in [tensor.data_ptr() for tensor in both], "after the backward pass nobody uses it"


def test_another_type_takes_the_same_memory(pool):
    first = make(pool)
    place = first.data_ptr()
    del first
    second = pool.empty((SIZE // 2,), torch.float64)
    assert second.dtype == torch.float64
    assert second.data_ptr() == place


def test_a_block_much_larger_than_needed_is_left_alone(pool):
    first = make(pool)
    place = first.data_ptr()
    del first
    others = [make(pool, SIZE // 2 - 1), make(pool, SIZE + 1)]
    assert place not in [other.data_ptr() for other in others]
    assert make(pool, SIZE // 2 + 1).data_ptr() == place


def test_the_smallest_that_is_large_enough(pool):
    tensors = [make(pool, SIZE + n) for n in (5, 2, 0)]
    place = tensors[1].data_ptr()
    del tensors
    assert make(pool, SIZE + 1).data_ptr() == place


def sizes(pool: Pool) -> list[int]:
    pool._collect()
    return [len(block) for block in pool.spare]


def test_no_more_is_held_than_allowed(pool, monkeypatch):
    monkeypatch.setattr(memory_pool, "MOST", 12 * SIZE)
    tensors = [make(pool) for _ in range(4)]
    del tensors
    assert sizes(pool) == 3 * [4 * SIZE], "the fourth was ordinary memory"
    longer = make(pool, 2 * SIZE)
    assert sizes(pool) == [4 * SIZE], "two had to go"
    del longer
    assert sizes(pool) == [4 * SIZE, 8 * SIZE]
    pool.release()
    assert sizes(pool) == []


def test_released_memory_is_gone(pool):
    make(pool)
    pool._collect()
    (block,) = pool.spare
    gone = weakref.ref(block)
    del block
    pool.release()
    assert gone() is None


@pytest.mark.parametrize("size", [1, 7, SIZE])
def test_tensors_begin_where_vectors_of_the_processor_do(pool, size):
    assert make(pool, size).data_ptr() % 64 == 0


def test_small_tensors_are_left_to_torch(pool, monkeypatch):
    monkeypatch.setattr(memory_pool, "UNIT", 4 * SIZE)
    make(pool, SIZE - 1)
    assert sizes(pool) == []
    make(pool, SIZE + 1)
    assert sizes(pool) == [8 * SIZE], "whole units"


def test_it_can_be_written_to_where_a_view_could_not(pool):
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return pool.empty(x.shape, x.dtype).copy_(2 * x)

        @staticmethod
        def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
            return 2 * grad

    x = torch.ones(SIZE, requires_grad=True)
    Twice.apply(x).mul_(3.0).sum().backward()
    assert x.grad is not None
    assert (x.grad == 6.0).all()


def test_no_python_runs_where_a_tensor_dies(pool):
    """An interrupt that comes there would be printed and forgotten."""
    tensors, called = [make(pool)], []
    sys.setprofile(lambda frame, event, argument: called.append(frame.f_code.co_name) if event == "call" else None)
    try:
        tensors.clear()
    finally:
        sys.setprofile(None)
    assert called == []
    assert sizes(pool) == [4 * SIZE]


def test_threads_share_it(pool):
    """Each finds in its tensors what it wrote, whatever the others do meanwhile."""

    def work(number: int) -> bool:
        fine = True
        for turn in range(300):
            tensors = [make(pool, SIZE + turn % 7 + n).fill_(number) for n in range(3)]
            fine &= all(bool((tensor == number).all()) for tensor in tensors)
        return fine

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, range(4)))
