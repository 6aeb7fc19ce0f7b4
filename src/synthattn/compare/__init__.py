"""Comparisons of the same model with several kinds of attention.

The package can be called: ``synthattn.compare(...)`` is :func:`synthattn.api.compare`.
"""

import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> Any:
        # The package stands below the functions for users, which are made from all of it.
        import importlib

        return importlib.import_module("synthattn.api").compare(*arguments, **options)


sys.modules[__name__].__class__ = _CallablePackage
