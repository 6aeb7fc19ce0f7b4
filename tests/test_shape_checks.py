"""Annotations are checked: types, shapes, and that axes of one name have one size in a call."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from beartype import beartype
from beartype.roar import BeartypeCallHintViolation
from torch import Tensor

import shape_checks
from synthattn.engine.plain import attention_weights
from synthattn.logits import Bias, Logits
from synthattn.masks import Mask
from synthattn.shapes import Float


def checked(fn: Any) -> Any:
    return shape_checks.check(fn, beartype)


@checked
def product(x: Float[Tensor, "rows inner"], y: Float[Tensor, "inner columns"]) -> Float[Tensor, "rows columns"]:
    return (x @ y) if len(x) < 7 else x


@checked
def maker() -> Callable[[Any], Any]:
    def inner(x: int) -> int:
        return x

    return checked(inner)


@checked
class Named:
    def itself(self, other: "Named | None") -> "Named":
        return other or self


@checked
@dataclasses.dataclass
class Pair:
    count: int


@pytest.mark.parametrize(
    ("call", "right", "wrong"),
    [
        (product, (torch.zeros(2, 3), torch.zeros(3, 5)), (torch.zeros(2, 3), torch.zeros(4, 5))),
        (product, (torch.zeros(2, 3), torch.zeros(3, 5)), (torch.zeros(2, 3), torch.zeros(3, 5).long())),
        (product, (torch.zeros(2, 3), torch.zeros(3, 5)), (torch.zeros(7, 3), torch.zeros(3, 5))),
        (Pair, (3,), ("3",)),
        (attention_weights, (Logits((Bias(torch.zeros(1, 2, 2)),)), Mask()), (torch.zeros(1, 2, 2), Mask())),
    ],
    ids=["axes", "kind", "result", "dataclass", "package"],
)
def test_a_wrong_value_is_refused(call, right, wrong):
    call(*right)
    with pytest.raises(BeartypeCallHintViolation):
        call(*wrong)


def test_calls_in_a_call_have_axes_of_their_own():
    @checked
    def outer(x: Float[Tensor, "rows inner"]) -> Float[Tensor, "rows inner"]:
        product(torch.zeros(4, 5), torch.zeros(5, 1))
        return x

    assert outer(torch.zeros(2, 3)).shape == (2, 3)


def test_an_inner_function_is_checked_once():
    with pytest.raises(BeartypeCallHintViolation):
        maker()("3")
    assert maker()("3") == "3"


def test_names_that_are_not_known_yet_are_any_type():
    assert isinstance(Named().itself(None), Named)
