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
        import warnings

        with warnings.catch_warnings():
            # In a notebook, a library warns that another kind of bar than ours would need a package.
            warnings.filterwarnings("ignore", message="IProgress not found")
            compare = importlib.import_module("synthattn.api").compare
        return compare(*arguments, **options)


sys.modules[__name__].__class__ = _CallablePackage
