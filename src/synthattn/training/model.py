"""Build and load models; initial weights do not depend on the attention."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers.utils import logging

from synthattn.data.tokenizers import TOKENIZER, load_tokenizer
from synthattn.messages import suggestion
from synthattn.models.compat import StrictDataclassError
from synthattn.models.configuration import SynthesizerConfig
from synthattn.models.describe import MODELS, find_model
from synthattn.models.folder import CONFIGURATION, check_generation, check_weights
from synthattn.models.modeling import SynthesizerPreTrainedModel
from synthattn.models.presets import PRESETS
from synthattn.models.size import check_size
from synthattn.synthesizers.base import Synthesizer
from synthattn.synthesizers.mixture import Mixture
from synthattn.tasks.base import Kind
from synthattn.training import checkpoints
from synthattn.training.settings import ModelSettings

MODEL_OF: dict[Kind, str] = {
    "seq2seq": "seq2seq",
    "span-corruption": "seq2seq",
    "causal-lm": "causal-lm",
    "classification": "classifier",
}


def configuration(settings: ModelSettings, **fields: Any) -> SynthesizerConfig:
    """Return the configuration for settings; ``fields`` are decided by the data."""
    if settings.start is None and settings.preset not in PRESETS:
        raise ValueError(f"unknown preset {settings.preset!r}{suggestion(settings.preset, PRESETS)}")
    try:
        if settings.start is not None:
            # Created again, so that fields are checked.
            return SynthesizerConfig.from_dict(saved_configuration(Path(settings.start)).to_dict() | settings.fields)
        return PRESETS[settings.preset](settings.attention, **(settings.fields | fields))
    except StrictDataclassError as error:
        raise ValueError(f"model: {' '.join(str(error).split())}") from error


def saved_configuration(folder: Path) -> SynthesizerConfig:
    """Read the configuration of a saved model."""
    return find_model(str(folder), None)[0]


def build(config: SynthesizerConfig, kind: Kind, seed: int) -> SynthesizerPreTrainedModel:
    """Build a new model whose parts are each initialised from a seed made of ``seed`` and the part's name.

    Models that differ only in attention therefore share the initial weights of all other parts.
    """
    with torch.random.fork_rng(devices=[]):
        model = MODELS[MODEL_OF[kind]](config)
        initialise(model, seed)
    return model


def load(folder: Path, config: SynthesizerConfig | None = None) -> SynthesizerPreTrainedModel:
    """Load a saved model of any kind after checking its files; no weight is initialised at random.

    Args:
        folder: the folder of the model. If it has a seal, as in a run, its files must match the seal.
        config: the configuration to use in place of the saved one.
    """
    saved, kind = find_model(str(folder), None)
    config = saved if config is None else config
    check_size(config)
    check_weights(folder, lambda: MODELS[kind](config), config)
    check_generation(folder, config)
    weights = [file.name for file in folder.glob("*.safetensors")]
    if (folder / checkpoints.SEAL).exists() and (wrong := checkpoints.damage(folder, weights)) is not None:
        raise ValueError(
            f"{folder} {wrong}: it is not as it was written; copy it again, or, if you changed it yourself, delete "
            f"{folder / checkpoints.SEAL}"
        )
    if kind in ("seq2seq", "causal-lm") and config.decoder_start_token_id is None:
        raise ValueError(
            f"{folder / CONFIGURATION}: decoder_start_token_id is null; write the token that texts start with"
        )
    logging.disable_progress_bar()
    model = MODELS[kind].from_pretrained(folder, config=config, use_safetensors=True)
    # A model returns outputs by name, and ``generate`` only tokens, whatever the files say.
    model.config.output_attentions = model.config.output_hidden_states = False
    model.config.return_dict = True
    if (generation := getattr(model, "generation_config", None)) is not None:
        generation.output_attentions = generation.output_hidden_states = generation.return_dict_in_generate = False
    return model


def load_tokenizer_of(folder: Path) -> Any:
    """Load the tokenizer of a saved model, and check that the model has a vector for each token."""
    tokenizer = load_tokenizer(folder)
    tokens, vocab_size = max(tokenizer.get_vocab().values()) + 1, saved_configuration(folder).vocab_size
    if tokens > vocab_size:
        raise ValueError(
            f"{folder / TOKENIZER} has {tokens:,} tokens, {CONFIGURATION} says vocab_size={vocab_size:,}: it is the "
            "tokenizer of another model; copy the folder again"
        )
    return tokenizer


def load_for(folder: Path, kind: Kind, labels: Sequence[str], config: SynthesizerConfig) -> SynthesizerPreTrainedModel:
    """Load a saved model to start from, and check its kind and its number of classes."""
    model = load(folder, config)
    check_kind(model, folder, kind, kind)
    check_classes(model, folder, labels)
    return model


ANSWERING = ("seq2seq", "causal-lm", "classifier")
"""Kinds of models that can answer a text."""


def check_answers(model: SynthesizerPreTrainedModel, folder: Path) -> None:
    """Raise a ValueError unless a model can translate, continue or classify a text."""
    kinds = [MODELS[kind] for kind in ANSWERING]
    if type(model) not in kinds:
        names = " or ".join(kind.__name__ for kind in kinds)
        raise ValueError(f"{folder} holds a {type(model).__name__}, which answers nothing; give a {names}")


def check_kind(model: SynthesizerPreTrainedModel, folder: Path, kind: Kind, task: str) -> None:
    """Raise a ValueError unless a model is of the kind that a task needs."""
    wanted = MODELS[MODEL_OF[kind]]
    if type(model) is not wanted:
        raise ValueError(f"{folder} holds a {type(model).__name__}, {task} needs a {wanted.__name__}")


def check_classes(model: SynthesizerPreTrainedModel, folder: Path, labels: Sequence[str]) -> None:
    """Raise a ValueError unless a classifier has as many classes as the data, if the data has classes."""
    if labels and model.config.num_labels != len(labels):
        raise ValueError(f"{folder} knows {model.config.num_labels} classes, the data has {len(labels)}")


def name_classes(model: SynthesizerPreTrainedModel, labels: Sequence[str]) -> None:
    """Store the names of the classes in a classifier's configuration."""
    model.config.id2label = dict(enumerate(labels))
    model.config.label2id = {name: n for n, name in enumerate(labels)}


def class_names(model: SynthesizerPreTrainedModel) -> tuple[str, ...]:
    """Return the names of a classifier's classes in order; empty if they were never set."""
    named: dict[Any, str] = model.config.id2label or {}
    names = tuple(named[n] for n in sorted(named))
    # transformers gives these names to classes without names.
    return () if names == tuple(f"LABEL_{n}" for n in range(len(names))) else names


def placed(model: SynthesizerPreTrainedModel) -> Any:
    """Move a model to the accelerator if there is one."""
    moved: Any = model
    return moved.to("cuda" if torch.cuda.is_available() else "cpu")


def initialise(model: SynthesizerPreTrainedModel, seed: int) -> None:
    """Initialise all parts of a model. This changes the global random state."""
    output = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    tied = output if model.config.tie_word_embeddings else None
    for name, module in _named(model, ""):
        if module is not tied:
            digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
            # torch.manual_seed would look for all kinds of devices each time.
            torch.default_generator.manual_seed(int.from_bytes(digest[:8], "big"))
            model._init_weights(module)


def _named(module: nn.Module, path: str) -> Iterator[tuple[str, nn.Module]]:
    """Yield all modules by name, outer ones first; synthesizers are named by kind, alone or in a mixture."""
    yield path, module
    seen: dict[str, int] = {}
    for name, child in module.named_children():
        if isinstance(module, Mixture) and name == "terms":
            for term in child.children():
                kind = term.name if isinstance(term, Synthesizer) else type(term).__name__
                seen[kind] = seen.get(kind, 0) + 1
                yield from _named(term, f"{path.removesuffix('.mixture')}.{kind}{seen[kind] if seen[kind] > 1 else ''}")
        elif isinstance(child, Synthesizer):
            yield from _named(child, f"{path}.{name}.{child.name}")
        else:
            yield from _named(child, f"{path}.{name}")


def parameters(model: nn.Module) -> int:
    """Count trainable parameters; tied weights count once."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def check_sizes(settings: ModelSettings, kind: Kind) -> None:
    """Raise a ValueError if there is no model with these settings. No memory is taken."""
    with torch.device("meta"):
        MODELS[MODEL_OF[kind]](configuration(settings))


def matched_control(settings: ModelSettings, kind: Kind, target: int, **fields: Any) -> ModelSettings:
    """Return settings of a vanilla model with about ``target`` parameters and wider feed-forward layers.

    The paper has such a control, but does not say which part of it was enlarged.
    """

    def count(d_ff: int) -> int:
        changed = ModelSettings(settings.preset, "vanilla", None, settings.fields | {"d_ff": d_ff})
        with torch.device("meta"):
            return parameters(MODELS[MODEL_OF[kind]](configuration(changed, **fields)))

    now = configuration(settings, **fields).d_ff
    slope = count(now + 1) - count(now)
    d_ff = max(1, now + math.floor((target - count(now)) / slope + 0.5))
    return ModelSettings(settings.preset, "vanilla", None, settings.fields | {"d_ff": d_ff})
