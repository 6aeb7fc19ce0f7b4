"""Shape annotations, checked by jaxtyping in the tests; plain tensors where jaxtyping is not installed.

``Float[Tensor, "batch heads q k"]`` is a float tensor with these axes. ``#heads`` may also be 1, ``*batch`` may be
missing (``*examples`` too, independently), ``*axes`` are any axes. Names of axes mean the same in the whole package:

==============  ======================================================================
batch           examples
length          tokens, where queries and keys are the same
q, k            queries, and keys with their values
n               positions in a table, the paper's N
d_model         width of a token vector
heads           heads of an attention
width           width of a head: queries, keys and values
key_width       width of all keys that decoding keeps for a head, see ``Synthesizer``
inner           heads * width
features        batch * width, where each feature of each example is a row
kernel          tokens in the window of a convolution
==============  ======================================================================
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
