import pytest
import torch

from synthattn import spare

SIZE = 1031


@pytest.fixture(autouse=True)
def _of_its_own(monkeypatch):
    monkeypatch.setattr(spare, "LEAST", 1)
    monkeypatch.setattr(spare, "_spare", [])


def make(size: int = SIZE) -> torch.Tensor:
    return spare.empty((size,), torch.float32)


def test_memory_of_a_tensor_that_is_gone_is_used_again():
    first = make()
    place = first.data_ptr()
    del first
    again = spare.empty((1, SIZE - 5), torch.float32)
    assert again.data_ptr() == place
    assert again.shape == (1, SIZE - 5)


@pytest.mark.parametrize(
    "alias", [lambda t: t[3:], lambda t: t.detach(), lambda t: t.data, lambda t: t.view(1, -1), lambda t: t.numpy()]
)
def test_memory_is_not_used_again_while_anything_reads_it(alias):
    first = make().fill_(3.0)
    place, other = first.data_ptr(), alias(first)
    del first
    second = make().fill_(7.0)
    assert second.data_ptr() != place
    assert (torch.as_tensor(other) == 3.0).all()


def test_what_a_graph_has_saved_is_in_use():
    weight = torch.ones(SIZE, requires_grad=True)
    saved = make().fill_(3.0)
    loss = (weight * saved).sum()
    del saved
    make().fill_(7.0)
    loss.backward()
    assert weight.grad is not None
    assert (weight.grad == 3.0).all()
    assert len(spare._spare) == 2, "after the backward pass nobody uses either"


def test_another_type_takes_the_same_memory():
    first = make()
    place = first.data_ptr()
    del first
    second = spare.empty((SIZE // 2,), torch.float64)
    assert second.dtype == torch.float64
    assert second.data_ptr() == place


def test_a_block_much_larger_than_needed_is_left_alone():
    first = make()
    place = first.data_ptr()
    del first
    assert make(SIZE // 2 - 1).data_ptr() != place
    assert make(SIZE + 1).data_ptr() != place
    assert make(SIZE // 2 + 1).data_ptr() == place


def test_no_more_is_kept_than_allowed_and_the_oldest_goes_first(monkeypatch):
    monkeypatch.setattr(spare, "MOST", 10 * SIZE)
    tensors = [make(SIZE), make(SIZE + 1), make(SIZE + 2)]
    places = [t.data_ptr() for t in tensors]
    while tensors:
        del tensors[0]
    assert [block.size for block in spare._spare] == [4 * (SIZE + 1), 4 * (SIZE + 2)]
    assert make(SIZE).data_ptr() == places[1], "the smallest that is large enough"
    spare.release()
    assert spare._spare == []


@pytest.mark.parametrize("size", [1, 7, SIZE])
def test_tensors_begin_where_vectors_of_the_processor_do(size):
    assert make(size).data_ptr() % 64 == 0


def test_small_tensors_are_left_to_torch(monkeypatch):
    monkeypatch.setattr(spare, "LEAST", 4 * SIZE)
    del (small := [make(SIZE - 1)])[0]
    assert small == spare._spare == []
    make(SIZE)
    assert len(spare._spare) == 1
