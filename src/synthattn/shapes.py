"""Shape annotations: jaxtyping's where it is installed (the tests check them), plain tensors elsewhere.

``Float[Tensor, "batch heads q k"]`` reads as a float tensor with these axes; ``#batch`` may also be 1.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
else:
    try:
        from jaxtyping import Bool, Float, Int
    except ImportError:

        class _Unchecked:
            def __class_getitem__(cls, item: tuple[Any, str]) -> Any:
                return item[0]

        Bool = Float = Int = _Unchecked

__all__ = ["Bool", "Float", "Int"]
