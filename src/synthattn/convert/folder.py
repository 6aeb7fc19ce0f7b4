"""Save and load models of transformers whose attention was replaced.

``config.json`` holds the attention of every replaced layer, and the name of an attention function that does not exist:
transformers alone refuses to load such a model, instead of drawing the missing projections at random. The Auto classes
load it after ``import synthattn``: see ``auto_classes.py``.
"""

import copy
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any

from torch import nn

from synthattn.convert.attention_modules import self_attentions
from synthattn.convert.install import build_synthesizer, install
from synthattn.convert.plan import Installed, Plan, is_installed
from synthattn.messages import listed
from synthattn.saved_file import restore as restored

LOADER = "synthattn.from_pretrained"
"""The name of the function that loads the model, where transformers reads the name of the attention function."""

PLACE = ("cache_dir", "force_download", "local_files_only", "proxies", "revision", "subfolder", "token")
"""Options that say where the files are. ``AutoConfig.from_pretrained`` uses them, and does not return them."""

VERSION = 1


@dataclass(frozen=True)
class SavedPlan:
    """The entry ``synthattn`` of ``config.json``: the attention of each replaced module."""

    version: int
    layers: dict[str, Plan]


def write_plan(model: nn.Module) -> None:
    """Write the attention of all replaced modules into the configuration that is saved with the model."""
    layers = {path: _installed(part).plan for path, part in model.named_modules() if is_installed(part)}
    config: Any = model.config
    config.synthattn = asdict(SavedPlan(VERSION, layers))
    config.attn_implementation = LOADER


def forget_plan(model: nn.Module) -> None:
    """Remove the plan from the configuration of a model whose attention was restored."""
    config: Any = model.config
    for name in ("synthattn", "attn_implementation"):
        config.__dict__.pop(name, None)


def from_pretrained(
    folder: str | PathLike[str], model_class: type[nn.Module] | None = None, *args: Any, **options: Any
) -> Any:
    """Load a model that was saved by ``save_pretrained`` after ``replace_attention``.

    Args:
        folder: a folder, or a name on the Hub.
        model_class: a class of transformers, such as ``BertForSequenceClassification``, to load the same encoder with
            another head; the class that was saved unless given.
        args: further arguments of the model class.
        options: options of ``transformers.PreTrainedModel.from_pretrained``.
    """
    import transformers

    dtype = options.pop("dtype", options.pop("torch_dtype", None))
    config: Any = copy.deepcopy(options.pop("config", None))
    if not isinstance(config, transformers.PreTrainedConfig):
        source = folder if config is None else config
        place = {name: options[name] for name in PLACE if name in options}
        found: Any = transformers.AutoConfig.from_pretrained(source, return_unused_kwargs=True, **options)
        config, options = found[0], found[1] | place
    layers = _read_plan(config, folder)
    del config.__dict__["synthattn"]  # transformers loads the rest
    if config._attn_implementation == LOADER:
        config._attn_implementation = None
    names = config.architectures or []
    kind = model_class or getattr(transformers, names[0] if names else "", None)
    if not isinstance(kind, type) or not issubclass(kind, transformers.PreTrainedModel):
        raise ValueError(f"{folder}: transformers has no model class {names[0] if names else None!r}; give model_class")
    wants_report = options.pop("output_loading_info", False)
    model, report = _with_plan(kind, layers).from_pretrained(
        folder, *args, config=config, dtype=dtype, output_loading_info=True, **options
    )
    object.__setattr__(model, "__class__", kind)
    replaced = [path for path, part in model.named_modules() if is_installed(part)]
    wrong = {*report["missing_keys"], *(key[0] for key in report["mismatched_keys"])}
    if model_class is not None:  # a new head has weights of its own
        wrong = {key for key in wrong if any(key.startswith(f"{path}.") for path in replaced)}
    if wrong:
        raise ValueError(
            f"{folder} lacks weights, or has them in another shape: {listed(sorted(wrong), 3)}; save again"
        )
    for path in replaced:
        installed = _installed(model.get_submodule(path))
        installed.originals = None if installed.originals else {}
    write_plan(model)
    return (model, report) if wants_report else model


def _with_plan(kind: type[Any], layers: dict[str, Plan]) -> type[Any]:
    """Return a subclass whose models have the attention of the plan before weights are loaded."""

    def create(self: Any, config: Any, *args: Any, **options: Any) -> None:
        kind.__init__(self, config, *args, **options)
        servable = {found.path: found for found in self_attentions(self)}
        prefix = self.base_model_prefix + "."
        for path, plan in layers.items():
            names = [path, prefix + path, path.removeprefix(prefix)]
            found = next((servable[name] for name in names if name in servable), None)
            if found is None or found.obstacle is not None:
                reason = f" ({found.obstacle})" if found is not None else ""
                raise ValueError(f"config.json replaces {path}, which {kind.__name__} does not have{reason}")
            install(found.path, found.module, plan, build_synthesizer(found.module, plan))

    return type(kind.__name__, (kind,), {"__init__": create, "__module__": kind.__module__})


def _read_plan(config: Any, folder: str | PathLike[str]) -> dict[str, Plan]:
    saved = getattr(config, "synthattn", None)
    if saved is None:
        raise ValueError(f"{folder} holds no model with replaced attention; load it with transformers")
    try:
        plan = restored(SavedPlan, saved)
    except ValueError as error:
        raise ValueError(f"{folder}/config.json: synthattn {error}") from error
    if plan.version != VERSION:
        raise ValueError(f"{folder}/config.json: synthattn has version {plan.version}, this program reads {VERSION}")
    return plan.layers


def _installed(module: nn.Module) -> Installed:
    installed = module.synthattn
    assert isinstance(installed, Installed)
    return installed
