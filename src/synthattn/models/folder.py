"""Check the files of a saved model before loading it.

A folder may be incomplete, damaged, edited or written by another program. This module checks ``config.json`` and the
headers of the weights. Every mistake is a ``ValueError`` of one line that names the file.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from safetensors import SafetensorError, safe_open

from synthattn.messages import suggestion
from synthattn.models.compat import GenerationConfig, StrictDataclassError
from synthattn.models.configuration import SynthesizerConfig
from synthattn.saved_file import one_line, read_json, restore

CONFIGURATION, GENERATION = "config.json", "generation_config.json"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"

OWN = set(SynthesizerConfig.__annotations__)
"""Fields that every saved ``config.json`` has. A missing field would silently get its default."""


@dataclasses.dataclass
class _Inherited:
    """Fields that transformers adds to a configuration without checking their types."""

    architectures: list[str] | None = None
    auto_map: dict[str, Any] | None = None
    chunk_size_feed_forward: int = 0
    dtype: str | None = None
    label2id: dict[str, int | str] | None = None
    output_attentions: bool | None = None
    output_hidden_states: bool | None = None
    problem_type: Literal["regression", "single_label_classification", "multi_label_classification"] | None = None
    return_dict: bool | None = None
    task_specific_params: dict[str, Any] | None = None
    torch_dtype: str | None = None
    transformers_version: str | None = None
    _name_or_path: str = ""


INHERITED = {field.name for field in dataclasses.fields(_Inherited)}
KNOWN = {field.name for field in dataclasses.fields(SynthesizerConfig)}
KNOWN |= INHERITED | {"model_type", "num_labels"}

DTYPES = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64, "I64": torch.int64}
TOKENS = ("decoder_start_token_id", "eos_token_id", "pad_token_id")
NUMBERS = (
    *("max_length", "min_length", "max_new_tokens", "min_new_tokens", "max_time", "num_beams", "num_return_sequences"),
    *("temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff", "repetition_penalty"),
    *("encoder_repetition_penalty", "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size"),
)
"""Fields of ``generation_config.json`` whose type transformers does not check."""
SHOWN = 3
"""Number of names in a message."""


def read_configuration(folder: Path) -> SynthesizerConfig:
    """Read ``config.json``, which must state every field of a configuration and no others."""
    file = folder / CONFIGURATION
    if not file.is_file():
        raise ValueError(f"{folder} holds no {CONFIGURATION}, so it is not a saved model")
    saved = read_json(file)
    if not isinstance(saved, dict):
        raise ValueError(f"{file} must hold an object, got a {type(saved).__name__}")
    if saved.get("model_type") != SynthesizerConfig.model_type:
        given = f"{saved.get('model_type')}"[:60]
        raise ValueError(f"{folder} holds a {given} model, not a {SynthesizerConfig.model_type} one")
    for name in saved:
        if name not in KNOWN:
            close = suggestion(name, KNOWN)
            way_out = close if "did you mean" in close else "; delete it from the file"
            raise ValueError(f"{file} has a field {name[:60]!r}, which a configuration lacks{way_out}")
    try:
        restore(_Inherited, {name: value for name, value in saved.items() if name in INHERITED})
        config = SynthesizerConfig(**{name: value for name, value in saved.items() if name != "model_type"})
    except (StrictDataclassError, ValueError) as error:
        raise ValueError(f"{file}: {one_line(error)}") from error
    _check_names(file, saved.get("id2label"), saved.get("num_labels"))
    missing = sorted(OWN - set(saved))
    if missing:
        raise ValueError(f"{file} lacks {_first_names(missing)}; copy it again, or write what the model was made with")
    return config


def _check_names(file: Path, names: Any, count: Any) -> None:
    """Raise a ValueError unless names of classes are texts, as many as the file says."""
    if names is not None and not all(isinstance(name, str) for name in names.values()):
        raise ValueError(f"{file}: id2label must have texts for names, got {list(names.values())!r:.80}")
    if names is not None and count is not None and count != len(names):
        raise ValueError(f"{file}: num_labels is {count}, but id2label names {len(names)} classes; delete one of them")


class TensorHeader(NamedTuple):
    """Shape and dtype of a tensor in a file of weights."""

    file: Path
    shape: tuple[int, ...]
    dtype: str
    """Name of the dtype in safetensors, such as ``F32``."""


def read_headers(folder: Path) -> dict[str, TensorHeader]:
    """Read the names, shapes and dtypes of all weights in a folder from the headers of its files."""
    if (folder / WEIGHTS).is_file():
        return _header(folder / WEIGHTS)
    if (folder / INDEX).is_file():
        return _indexed(folder / INDEX)
    pickles = sorted(file.name for end in ("bin", "pt", "pth", "pkl", "ckpt") for file in folder.glob(f"*.{end}"))
    if pickles:
        raise ValueError(
            f"{folder} holds no {WEIGHTS}, only {_first_names(pickles)}, which may contain code and is not read; save "
            "the model as safetensors"
        )
    raise ValueError(f"{folder} holds no {WEIGHTS}; copy the folder again, or train the model anew")


def _header(file: Path) -> dict[str, TensorHeader]:
    try:
        with safe_open(file, "pt") as opened:
            slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118 (it is no dictionary)
            return {name: TensorHeader(file, tuple(one.get_shape()), one.get_dtype()) for name, one in slices.items()}
    except SafetensorError as error:
        reason = one_line(error)
        raise ValueError(f"{file} is cut off or damaged: {reason}; copy it again, or train the model anew") from error


def _indexed(index: Path) -> dict[str, TensorHeader]:
    found = read_json(index)
    places = found.get("weight_map") if isinstance(found, dict) else None
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise ValueError(f"{index} must have a weight_map from tensors to files; copy it again")
    tensors: dict[str, TensorHeader] = {}
    for name in sorted(set(places.values())):
        file = index.parent / name
        if Path(name).name != name or not file.is_file():
            raise ValueError(
                f"{index} names a file {name[:60]!r}, which is not in {index.parent}; copy the folder again"
            )
        tensors |= _header(file)
    wrong = sorted(name for name, place in places.items() if name not in tensors or tensors[name].file.name != place)
    if wrong or len(tensors) != len(places):
        wrong = wrong or sorted(set(tensors) - set(places))
        raise ValueError(f"{index} is wrong about the file of {_first_names(wrong)}; copy the folder again")
    return tensors


def check_weights(folder: Path, make: Callable[[], Any], config: SynthesizerConfig) -> None:
    """Raise a ValueError unless a folder holds all weights of a model and no others.

    Args:
        folder: the folder of the model.
        make: makes the model, on the device ``meta``, where it takes no memory.
        config: the configuration of the model.
    """
    stored = read_headers(folder)
    with torch.device("meta"):
        model = make()
    wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    tied = dict(model._tied_weights_keys or {}) if config.tie_word_embeddings else {}
    missing = [name for name in wanted if name not in stored and tied.get(name, name) not in stored]
    file = folder / (WEIGHTS if (folder / WEIGHTS).is_file() else INDEX)
    way_out = "copy the folder again, or save the model anew"
    if missing:
        raise ValueError(f"{file} lacks {_first_names(missing, len(wanted))}; {way_out}")
    ignored = "|".join(model._keys_to_ignore_on_load_unexpected or ["(?!)"])
    unexpected = [name for name in stored if name not in wanted and not re.search(ignored, name)]
    if unexpected:
        raise ValueError(f"{file} has {_first_names(unexpected)}, which a {type(model).__name__} lacks; {way_out}")
    for name, shape in wanted.items():
        if name in stored and stored[name].shape != shape:
            found = stored[name]
            raise ValueError(
                f"{found.file}: {name} has shape {found.shape}, {CONFIGURATION} asks for {shape}; {way_out}"
            )
    _check_dtypes([(name, stored[name]) for name in wanted if name in stored], model, config)
    for name, source in tied.items():
        if name in stored and source in stored and not _equal(stored[name], name, stored[source], source):
            raise ValueError(f"{file}: {name} is not {source}, which {CONFIGURATION} says it is; {way_out}")


def _check_dtypes(tensors: Iterable[tuple[str, TensorHeader]], model: Any, config: SynthesizerConfig) -> None:
    made = {name: tensor.dtype for name, tensor in model.state_dict().items()}
    floating = config.dtype
    for name, one in tensors:
        found = DTYPES.get(one.dtype)
        if floating is None and found is not None and found.is_floating_point:
            floating = found
        wanted = floating if made[name].is_floating_point else made[name]
        if found is None or found != wanted:
            said = str(wanted).removeprefix("torch.")
            raise ValueError(
                f"{one.file}: {name} has dtype {one.dtype}, {CONFIGURATION} and the other tensors say {said}; save the "
                "model anew with one dtype"
            )


def _equal(one: TensorHeader, name: str, other: TensorHeader, other_name: str) -> bool:
    with safe_open(one.file, "pt") as first, safe_open(other.file, "pt") as second:
        return torch.equal(first.get_tensor(name), second.get_tensor(other_name))


def check_generation(folder: Path, config: SynthesizerConfig) -> None:
    """Raise a ValueError if there is a ``generation_config.json`` that cannot be used with the model."""
    file = folder / GENERATION
    if not file.is_file():
        return
    saved = read_json(file)
    if not isinstance(saved, dict):
        raise ValueError(f"{file} must hold an object, got a {type(saved).__name__}; delete it, or copy it again")
    for name, value in saved.items():
        tokens = (value if isinstance(value, list) else [value]) if name.endswith("_token_id") else []
        for token in tokens:
            if token is not None and (type(token) is not int or not 0 <= token < config.vocab_size):
                raise ValueError(f"{file}: {name} must be a token below {config.vocab_size}, got {token!r:.60}")
        if name in NUMBERS and (isinstance(value, bool) or not isinstance(value, int | float | None)):
            raise ValueError(f"{file}: {name} must be a number, got {value!r:.60}; delete it, or copy it again")
    # Otherwise texts would start or end in another way than in training.
    missing = [name for name in TOKENS if saved.get(name) is None and getattr(config, name) is not None]
    if missing:
        raise ValueError(
            f"{file} lacks {_first_names(missing)}, which {CONFIGURATION} has; write them into it, or delete it"
        )
    if saved.get("num_return_sequences") not in (None, 1):
        raise ValueError(f"{file}: num_return_sequences must be 1: a text gets one answer")
    try:
        GenerationConfig.from_dict(saved).validate()
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"{file}: {one_line(error)}; delete it, or copy it again") from error


def _first_names(names: list[str], total: int | None = None) -> str:
    """Return the first names, and the number of the others."""
    shown = ", ".join(name[:80] for name in names[:SHOWN])
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{shown}{more}" + (f" ({len(names)} of {total} tensors)" if total else "")
