"""Let the Auto classes of transformers load models whose attention was replaced.

They read the configuration, and hand it to ``from_pretrained`` of a model class. That function is wrapped: if the
configuration has a plan, ``synthattn.from_pretrained`` loads the model. Nothing is imported before that.
"""

import functools
import importlib
import importlib.util
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MODULE = "transformers.modeling_utils"
"""The module that defines ``PreTrainedModel``."""


def serve_auto_classes() -> None:
    """Wrap ``PreTrainedModel.from_pretrained``: now, or when transformers defines it."""
    if MODULE in sys.modules:
        _wrap(sys.modules[MODULE])
    else:
        sys.meta_path.insert(0, _WrapAfterImport())


class _WrapAfterImport(MetaPathFinder):
    """Wrap the function after the import of its module, which other finders find."""

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_wrap(module: ModuleType) -> None:
                execute(module)
                _wrap(module)

            spec.loader.exec_module = execute_and_wrap
        return spec


def _wrap(module: ModuleType) -> None:
    plain = module.PreTrainedModel.from_pretrained.__func__

    @functools.wraps(plain)
    def from_pretrained(cls: Any, pretrained_model_name_or_path: Any, *args: Any, **options: Any) -> Any:
        if getattr(options.get("config"), "synthattn", None) is None:
            return plain(cls, pretrained_model_name_or_path, *args, **options)
        load = importlib.import_module("synthattn.convert").from_pretrained
        return load(pretrained_model_name_or_path, cls, *args, **options)

    module.PreTrainedModel.from_pretrained = classmethod(from_pretrained)
