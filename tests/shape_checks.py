"""Check annotations in a fraction of the time that jaxtyping takes.

``jaxtyping.jaxtyped`` binds the arguments of every call to the signature, and checks them before the call and again
with the result, to tell in its message which of them is wrong. Here beartype checks a call once; sizes of axes are
remembered from the first argument to the result, and only where there are tensors. A function inside of another is
checked the first time that it is made, because beartype takes long to prepare a function.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from types import CodeType
from typing import Any, get_args

import jaxtyping

BY_JAXTYPING = jaxtyping.jaxtyped
INNER: set[CodeType] = set()
"""Functions inside of others that were checked."""


def has_tensors(annotation: Any) -> bool:
    """Return True for an annotation with a shape in it."""
    shaped = inspect.isclass(annotation) and issubclass(annotation, jaxtyping.AbstractArray)
    return shaped or any(map(has_tensors, get_args(annotation)))


def resolve(fn: Any) -> None:
    """Replace names of types by the types, or by Any where there is no such type yet, as jaxtyping does."""
    for name, annotation in fn.__annotations__.items():
        if isinstance(annotation, str):
            try:
                fn.__annotations__[name] = eval(annotation, fn.__globals__)
            except NameError:
                fn.__annotations__[name] = Any


def check(fn: Any, typechecker: Callable[..., Any]) -> Any:
    if inspect.isclass(fn):
        if dataclasses.is_dataclass(fn) and "__init__" in vars(fn):
            fn.__init__ = check(fn.__init__, typechecker)
        return fn
    if not inspect.isfunction(fn) or inspect.isgeneratorfunction(fn) or inspect.iscoroutinefunction(fn):
        return BY_JAXTYPING(fn, typechecker=typechecker)
    if "<locals>" in fn.__qualname__:
        if fn.__code__ in INNER:
            return fn
        INNER.add(fn.__code__)
    resolve(fn)
    checked = typechecker(fn)
    if not any(map(has_tensors, fn.__annotations__.values())):
        return checked

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        with BY_JAXTYPING("context"):
            return checked(*args, **kwargs)

    return call


def install() -> None:
    """Let the import hook of jaxtyping take these checks."""
    jaxtyping.jaxtyped = lambda *, typechecker: functools.partial(check, typechecker=typechecker)
