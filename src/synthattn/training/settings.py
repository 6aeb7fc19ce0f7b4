"""All that a run can be told, from a YAML file, from options, or from ``a.b=c``; checked before anything starts."""

import dataclasses
import math
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from synthattn.data.tokenizers import TokenizerKind
from synthattn.messages import suggestion
from synthattn.saved_file import one_line, read_yaml
from synthattn.tasks.encoding import OverLong

Schedule = Literal["inverse_sqrt", "t5", "linear", "cosine", "constant"]
Optimizer = Literal["adam", "adafactor"]
Precision = Literal["fp32", "bf16"]
Keep = Literal["last", "best", "average"]

DROPOUTS = ("dropout", "attention_dropout", "activation_dropout", "classifier_dropout")
"""Fields of a saved model's configuration that a run may change: its weights do not depend on them."""


@dataclass(frozen=True)
class DataSettings:
    """What is learned from.

    Args:
        source: a folder, a file, ``hub:NAME`` or ``builtin:NAME``; several, joined by `` + ``, are read as one. For a
            suite of tasks a folder with a folder of each.
        task: a task, or ``glue`` or ``superglue`` for all of theirs together.
        columns: columns of the source for fields of the task, such as ``label=0,text=1+2``; one that ends in ``?`` may
            be missing.
        tokenizer: ``unigram``, ``bytes`` or ``words``, trained on the training split.
        vocab_size: tokens in the vocabulary.
        over_long: what is done with examples that are longer than the model's longest input: ``truncate`` or ``drop``.
        read_examples: read only that many records of the training split, the first ones: the tokenizer is trained on
            these, and only these are encoded; all unless given.
        train_examples: learn from that many, the first of the split; all unless given.
        mix_limit: where several tasks are learned together, none counts as larger than that (T5's limit).
    """

    source: str = "builtin:docs"
    task: str = "language-modeling"
    columns: str = ""
    tokenizer: TokenizerKind = "unigram"
    vocab_size: int = 8000
    over_long: OverLong = "truncate"
    read_examples: int | None = None
    train_examples: int | None = None
    mix_limit: int | None = None


@dataclass(frozen=True)
class ModelSettings:
    """What learns.

    Args:
        preset: where the sizes come from, see ``synthattn describe``.
        attention: of all layers of both stacks, such as ``random+vanilla``.
        start: a folder of a saved model to start from; its tokenizer is used, and its sizes; of its fields only those
            of dropout can be changed.
        fields: any fields of the configuration to change, such as ``d_model: 128``.
    """

    preset: str = "cpu"
    attention: str = "random+vanilla"
    start: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainingSettings:
    """How it learns. A run ends after ``steps``, ``tokens`` or ``minutes``, whichever is given.

    Args:
        steps: updates of the weights.
        tokens: enough steps to read that many tokens, padding not counted.
        minutes: as many steps as that time allows; only schedules without an end can be used.
        batch_tokens: tokens in a batch at most, padding included, of all processes together.
        accumulation: batches to a step.
        learning_rate: the highest.
        schedule: ``inverse_sqrt`` (the paper's), ``linear``, ``cosine`` or ``constant``, all after the warm-up; or
            ``t5``, as ``inverse_sqrt`` but without a rise: the highest from the start.
        warmup: steps in which the learning rate rises, or is held with ``t5``.
        optimizer: ``adam``, or ``adafactor`` in T5's form, whose learning rate is relative to the size of each
            parameter: its root mean square, 0.001 at least.
        beta1: of Adam.
        beta2: of Adam.
        epsilon: of Adam.
        weight_decay: decoupled, of matrices only: not of biases, norms and weights of mixtures.
        label_smoothing: share of the probability that goes to all tokens alike; 0.1 for tasks that write a text.
        clip: gradients are scaled to have at most this norm; 0 for no limit.
        seed: of the first weights, the order of the examples and dropout.
        precision: ``fp32``, or ``bf16`` where the hardware has it.
        gradient_checkpointing: compute activations twice to keep fewer.
        shard: split the model itself over the processes (FSDP2), for models too large for one accelerator.
        compile: let torch compile the model.
        workers: processes that prepare batches.
        log_every: steps between points of the loss curve.
        evaluate_every: steps between looks at the validation loss; a tenth of the run unless given.
        evaluate_tokens: tokens of the validation split that are looked at then.
        save_every: steps between checkpoints; a multiple of ``log_every``; as ``evaluate_every`` unless given.
        keep_checkpoints: how many are kept.
        patience: stop when so many looks at the validation loss found no better one.
        keep: which weights are the result: of the ``last`` step, of the ``best`` look, or the ``average`` of the
            checkpoints that are kept.
    """

    steps: int | None = None
    tokens: int | None = None
    minutes: float | None = None
    batch_tokens: int = 4096
    accumulation: int = 1
    learning_rate: float = 1e-3
    schedule: Schedule = "inverse_sqrt"
    warmup: int = 200
    optimizer: Optimizer = "adam"
    beta1: float = 0.9
    beta2: float = 0.98
    epsilon: float = 1e-9
    weight_decay: float = 0.0
    label_smoothing: float | None = None
    clip: float = 1.0
    seed: int = 0
    precision: Precision = "fp32"
    gradient_checkpointing: bool = False
    shard: bool = False
    compile: bool = False
    workers: int = 0
    log_every: int = 10
    evaluate_every: int | None = None
    evaluate_tokens: int = 50_000
    save_every: int | None = None
    keep_checkpoints: int = 2
    patience: int | None = None
    keep: Keep = "last"


@dataclass(frozen=True)
class EvaluationSettings:
    """How it is judged.

    Args:
        split: ``test`` unless given, or ``validation`` where there is none.
        limit: judge that many examples, the first ones; all unless given.
        beams: 1 is greedy decoding.
        length_penalty: of beam search.
        length_penalty_form: ``huggingface``: score / length^p, or ``gnmt``: score / ((5 + length) / 6)^p.
        max_new_tokens: the longest answer; 50 more than the longest text read unless given.
        batch_tokens: tokens in a batch.
        vectors: a file of word vectors for embedding metrics; the model's own unless given.
    """

    split: str | None = None
    limit: int | None = None
    beams: int = 1
    length_penalty: float = 1.0
    length_penalty_form: Literal["huggingface", "gnmt"] = "huggingface"
    max_new_tokens: int | None = None
    batch_tokens: int = 8192
    vectors: str | None = None


@dataclass(frozen=True)
class Settings:
    """A run."""

    data: DataSettings = DataSettings()
    model: ModelSettings = ModelSettings()
    training: TrainingSettings = TrainingSettings()
    evaluation: EvaluationSettings = EvaluationSettings()

    def __post_init__(self) -> None:
        _check(self)

    def changed(self, **changes: Any) -> "Settings":
        """With other values for settings that are named with two underscores: ``training__seed=3``."""
        result = self
        for name, value in changes.items():
            part, key = name.split("__", 1)
            result = dataclasses.replace(result, **{part: dataclasses.replace(getattr(result, part), **{key: value})})
        return result


def read_settings(file: Path | None, overrides: Iterable[str] = ()) -> dict[str, Any]:
    """The settings that a YAML file and ``a.b=c`` say, as nested dictionaries; later ones win."""
    import yaml

    found: dict[str, Any] = {}
    if file is not None:
        found = read_yaml(file) or {}
        if not isinstance(found, dict):
            raise ValueError(f"{file} must have settings such as 'training:', got a {type(found).__name__}")
    for text in overrides:
        path, equals, value = text.partition("=")
        if not equals or not path.strip():
            raise ValueError(f"--set needs NAME=VALUE, such as training.steps=500, got {text!r}")
        try:
            put(found, path.strip(), yaml.safe_load(value))
        except (yaml.YAMLError, RecursionError) as error:
            raise ValueError(f"--set {path}: {value[:60]!r} is not a value: {one_line(error)}") from error
    return found


def put(settings: dict[str, Any], path: str, value: Any) -> None:
    """Set ``a.b.c`` in nested dictionaries. Fields of the model need no ``fields``: ``model.d_model`` is enough."""
    *parents, last = path.split(".")
    place = settings
    for name in parents:
        if place.get(name) is None:  # as in a file that has a group with nothing in it
            place[name] = {}
        place = place[name]
        if not isinstance(place, dict):
            raise ValueError(f"--set {path}: {name} is a value, not a group of settings")
    place[last] = value


def from_dict(found: Mapping[str, Any]) -> Settings:
    """Settings of nested dictionaries; what they do not say stays as it is by default."""
    groups = {group.name: type(group.default) for group in dataclasses.fields(Settings)}
    for name in found:
        if name not in groups:
            raise ValueError(f"there are no settings {str(name)!r}{suggestion(str(name), groups)}")
    return Settings(**{name: _group(groups[name], name, values or {}) for name, values in found.items()})


def as_dict(settings: Settings) -> dict[str, Any]:
    return dataclasses.asdict(settings)


def _group(kind: type[Any], name: str, values: Any) -> Any:
    if not isinstance(values, Mapping):
        raise ValueError(f"{name} must be a group of settings, got {values!r}")
    hints = typing.get_type_hints(kind)
    chosen: dict[str, Any] = {}
    fields: dict[str, Any] = {}
    for key, value in values.items():
        if key in hints:
            chosen[key] = _value(f"{name}.{key}", value, hints[key])
        elif kind is ModelSettings:
            fields[str(key)] = value
        else:
            raise ValueError(f"there is no setting {name}.{key}{suggestion(str(key), hints)}")
    if fields:
        chosen["fields"] = chosen.get("fields", {}) | fields
    return kind(**chosen)


def _value(name: str, value: Any, hint: Any) -> Any:
    options = get_args(hint) if get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    if value is None and type(None) in options:
        return None
    for option in options:
        if get_origin(option) is Literal and value in get_args(option):
            return value
        # YAML reads 1e-3 as a text.
        if option is float and isinstance(value, int | float | str) and not isinstance(value, bool) and _finite(value):
            return float(value)
        if option is int and isinstance(value, int) and not isinstance(value, bool):
            return value
        if option is bool and isinstance(value, bool):
            return value
        if option is str and isinstance(value, str | int | float):
            return str(value)
        if get_origin(option) is dict and isinstance(value, dict):
            return dict(value)
    literals = [choice for option in options if get_origin(option) is Literal for choice in get_args(option)]
    if literals:
        raise ValueError(f"{name} cannot be {value!r}{suggestion(str(value), literals)}")
    wanted = {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        str: "a text",
        dict: "a group of settings",
    }
    kinds = [wanted[kind] for option in options if (kind := get_origin(option) or option) in wanted]
    raise ValueError(f"{name} must be {' or '.join(kinds)}, got {value!r}")


def _finite(value: int | float | str) -> bool:
    """Return whether a value stands for a finite number."""
    try:
        return math.isfinite(float(value))
    except (ValueError, OverflowError):
        return False


def _check(settings: Settings) -> None:
    training, data, evaluation = settings.training, settings.data, settings.evaluation
    ends = [name for name in ("steps", "tokens", "minutes") if getattr(training, name) is not None]
    if len(ends) > 1:
        raise ValueError(f"a run ends after steps, tokens or minutes, got {' and '.join(ends)}; leave one")
    at_least: dict[str, tuple[Any, float]] = {
        "training.steps": (training.steps, 1),
        "training.tokens": (training.tokens, 1),
        "training.batch_tokens": (training.batch_tokens, 1),
        "training.accumulation": (training.accumulation, 1),
        "training.warmup": (training.warmup, 0),
        "training.epsilon": (training.epsilon, 0),
        "training.weight_decay": (training.weight_decay, 0),
        "training.clip": (training.clip, 0),
        "training.seed": (training.seed, 0),
        "training.workers": (training.workers, 0),
        "training.log_every": (training.log_every, 1),
        "training.evaluate_every": (training.evaluate_every, 1),
        "training.evaluate_tokens": (training.evaluate_tokens, 1),
        "training.save_every": (training.save_every, 1),
        "training.keep_checkpoints": (training.keep_checkpoints, 1),
        "training.patience": (training.patience, 1),
        "data.vocab_size": (data.vocab_size, 1),
        "data.read_examples": (data.read_examples, 1),
        "data.train_examples": (data.train_examples, 1),
        "data.mix_limit": (data.mix_limit, 1),
        "evaluation.limit": (evaluation.limit, 1),
        "evaluation.beams": (evaluation.beams, 1),
        "evaluation.max_new_tokens": (evaluation.max_new_tokens, 1),
        "evaluation.batch_tokens": (evaluation.batch_tokens, 1),
    }
    for name, (value, least) in at_least.items():
        if value is not None and not value >= least:  # so that NaN is refused, too
            raise ValueError(f"{name} must be at least {least:g}, got {value:g}")
    if training.minutes is not None and not training.minutes > 0:
        raise ValueError(f"training.minutes must be above 0, got {training.minutes:g}")
    if not training.learning_rate > 0:
        raise ValueError(f"training.learning_rate must be above 0, got {training.learning_rate:g}")
    for name in ("beta1", "beta2", "label_smoothing"):
        value = getattr(training, name)
        if value is not None and not 0 <= value < 1:
            raise ValueError(f"training.{name} must be at least 0 and below 1, got {value:g}")
    if training.minutes is not None and training.schedule in ("linear", "cosine"):
        raise ValueError(
            f"schedule={training.schedule} needs to know the last step, which minutes do not say; "
            "give steps, or use inverse_sqrt"
        )
    if training.keep == "best" and training.save_every is not None:
        raise ValueError("keep=best saves at every look at the validation loss; leave training.save_every out")
    if settings.model.start is not None:
        usual = Settings()
        own = {name: getattr(settings.model, name) for name in ("preset", "attention")}
        changed = [f"model.{name}" for name, value in own.items() if value != getattr(usual.model, name)]
        changed += [f"model.{name}" for name in settings.model.fields if name not in DROPOUTS]
        changed += [
            f"data.{name}" for name in ("tokenizer", "vocab_size") if getattr(data, name) != getattr(usual.data, name)
        ]
        if changed:
            raise ValueError(
                f"{settings.model.start} has its own sizes, attention and tokenizer; leave out {', '.join(changed)}"
            )
    if training.save_every is not None and training.save_every % training.log_every:
        raise ValueError(
            f"training.save_every must be a multiple of training.log_every={training.log_every}, "
            f"got {training.save_every}: a resumed run would draw another curve"
        )
