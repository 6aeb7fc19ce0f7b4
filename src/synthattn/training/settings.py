"""Settings of a run from a YAML file, from options or from ``a.b=c``, checked before the run starts."""

import contextlib
import dataclasses
import math
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from synthattn.data.tokenizers import TokenizerKind
from synthattn.messages import suggestion
from synthattn.saved_file import one_line, read_yaml, restore
from synthattn.tasks.encoding import OverLong

Schedule = Literal["inverse_sqrt", "t5", "linear", "cosine", "constant"]
Optimizer = Literal["adam", "adafactor"]
Precision = Literal["auto", "fp32", "bf16"]
Keep = Literal["last", "best", "average"]

DROPOUTS = ("dropout", "attention_dropout", "activation_dropout", "classifier_dropout")
"""Fields of a saved model's configuration that a run may change, because the weights do not depend on them."""


@dataclass(frozen=True)
class DataSettings:
    """Settings of the training data.

    Args:
        source: a folder, a file, ``hub:NAME`` or ``builtin:NAME``; several, joined by `` + ``, are read as one. A suite
            of tasks needs a folder with one folder per task.
        task: a task, or ``glue`` or ``superglue`` for all tasks of a suite together.
        columns: columns of the source for fields of the task, such as ``label=0,text=1+2``; a column that ends in ``?``
            may be missing.
        tokenizer: ``unigram``, ``bytes`` or ``words``, trained on the training split.
        vocab_size: number of tokens in the vocabulary.
        over_long: treatment of examples that are longer than the model's longest input: ``truncate`` or ``drop``.
        read_examples: number of training records that are read, for the tokenizer too; all by default.
        train_examples: number of training examples that are used, from the beginning of the split; all by default.
        mix_limit: maximum size that a task counts as when several are learned together (T5's limit).
        skip_bad: leave out broken lines, and examples that the task cannot use; their number is noted.
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
    skip_bad: bool = False


@dataclass(frozen=True)
class ModelSettings:
    """Settings of the model.

    Args:
        preset: name of a set of sizes, see ``synthattn describe``.
        attention: attention of all layers of both stacks, such as ``random+vanilla``.
        start: folder of a saved model to start from, with its tokenizer and sizes; only its dropout can be changed.
        fields: fields of the configuration to change, such as ``d_model: 128``.
    """

    preset: str = "cpu"
    attention: str = "random+vanilla"
    start: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of training. A run ends after ``steps``, ``tokens`` or ``minutes``, whichever is given.

    Args:
        steps: number of updates of the weights.
        tokens: number of tokens to train on, padding not counted.
        minutes: time limit; only schedules without an end can be used.
        batch_tokens: maximum number of tokens in a batch, padding included, of all processes together.
        accumulation: batches per step.
        learning_rate: the highest learning rate.
        schedule: ``inverse_sqrt`` (the paper's), ``linear``, ``cosine`` or ``constant``, all after the warm-up; or
            ``t5``, as ``inverse_sqrt`` but without a rise: the highest from the start.
        warmup: steps in which the learning rate rises, or is held with ``t5``.
        optimizer: ``adam``, or ``adafactor`` in T5's form, whose learning rate is relative to the size of each
            parameter: its root mean square, 0.001 at least.
        beta1: decay of Adam's first moment.
        beta2: decay of Adam's second moment.
        epsilon: Adam's epsilon.
        weight_decay: decoupled weight decay of matrices; not of biases, norms and weights of mixtures.
        label_smoothing: share of probability spread over all tokens; by default 0.1 for tasks that write a text.
        clip: maximum norm of the gradients; 0 for no limit.
        seed: seed of the initial weights, the order of the examples and dropout.
        precision: ``fp32``, ``bf16`` if the hardware supports it, or ``auto``: bf16 on a GPU that computes in it.
        gradient_checkpointing: compute activations twice to keep fewer.
        shard: split the model itself over the processes (FSDP2), for models too large for one accelerator.
        compile: compile the model with torch.
        workers: number of processes that prepare batches.
        log_every: steps between points of the loss curve.
        evaluate_every: steps between validations; a tenth of the run by default.
        evaluate_tokens: number of validation tokens for the validation loss.
        save_every: steps between checkpoints, a multiple of ``log_every``; ``evaluate_every`` by default.
        keep_checkpoints: number of checkpoints that are kept.
        patience: number of validations without improvement after which the run stops.
        keep: weights of the result: of the ``last`` step, of the ``best`` validation, or the ``average`` of the
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
    precision: Precision = "auto"
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
    """Settings of the evaluation.

    Args:
        split: split to score; by default ``test``, or ``validation`` if there is no test split.
        limit: number of examples to score, from the beginning of the split; all by default.
        beams: width of beam search; 1 is greedy decoding.
        length_penalty: length penalty of beam search.
        length_penalty_form: ``huggingface``: score / length^p, or ``gnmt``: score / ((5 + length) / 6)^p.
        max_new_tokens: maximum number of tokens of an answer; by default 50 more than the longest input of the batch.
        batch_tokens: maximum number of tokens in a batch.
        vectors: a file of word vectors for embedding metrics; the model's own vectors by default.
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
    """All settings of one training run."""

    data: DataSettings = DataSettings()
    model: ModelSettings = ModelSettings()
    training: TrainingSettings = TrainingSettings()
    evaluation: EvaluationSettings = EvaluationSettings()

    def __post_init__(self) -> None:
        _check(self)

    def changed(self, **changes: Any) -> "Settings":
        """Return settings with changed values, named with two underscores: ``training__seed=3``."""
        result = self
        for name, value in changes.items():
            part, key = name.split("__", 1)
            result = dataclasses.replace(result, **{part: dataclasses.replace(getattr(result, part), **{key: value})})
        return result


def read_settings(file: Path | None, overrides: Iterable[str] = ()) -> dict[str, Any]:
    """Read settings from a YAML file and from ``a.b=c`` into nested dictionaries; later ones win."""
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
        if place.get(name) is None:  # a group in a file may be empty
            place[name] = {}
        place = place[name]
        if not isinstance(place, dict):
            raise ValueError(f"--set {path}: {name} is a value, not a group of settings")
    place[last] = value


def from_dict(found: Mapping[str, Any]) -> Settings:
    """Create settings from nested dictionaries; missing settings keep their defaults."""
    groups = {group.name: type(group.default) for group in dataclasses.fields(Settings)}
    for name in found:
        if name not in groups:
            raise ValueError(f"there are no settings {str(name)!r}{suggestion(str(name), groups)}")
    return Settings(**{name: _group(groups[name], name, values or {}) for name, values in found.items()})


def as_dict(settings: Settings) -> dict[str, Any]:
    """Return all settings; those that are newer than saved runs only if they are not the default."""
    found = dataclasses.asdict(settings)
    if not settings.data.skip_bad:
        del found["data"]["skip_bad"]
    return found


def _group(kind: type[Any], name: str, values: Any) -> Any:
    if not isinstance(values, Mapping):
        raise ValueError(f"{name} must be a group of settings, got {values!r}")
    hints = typing.get_type_hints(kind)
    others = {str(key): value for key, value in values.items() if key not in hints}
    if others and kind is not ModelSettings:
        key = next(iter(others))
        raise ValueError(f"there is no setting {name}.{key}{suggestion(key, hints)}")
    chosen = {key: _meant(value, hints[key]) for key, value in values.items() if key in hints}
    if others and isinstance(chosen.setdefault("fields", {}), dict):
        chosen["fields"] = chosen["fields"] | others
    try:
        return restore(kind, chosen)
    except ValueError as error:
        raise ValueError(f"{name}.{error}") from error


def _meant(value: Any, hint: Any) -> Any:
    """Return the number or the text that YAML has read as another type: it reads 1e-3 as a text."""
    options = get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if float in options and isinstance(value, int | float | str) and not isinstance(value, bool):
        with contextlib.suppress(ValueError, OverflowError):
            return number if math.isfinite(number := float(value)) else str(value)
    if str in options and isinstance(value, int | float):
        return str(value)
    return value


AT_LEAST = {
    "training": dict.fromkeys(("warmup", "epsilon", "weight_decay", "clip", "seed", "workers"), 0)
    | dict.fromkeys(("steps", "tokens", "batch_tokens", "accumulation", "log_every", "evaluate_every"), 1)
    | dict.fromkeys(("evaluate_tokens", "save_every", "keep_checkpoints", "patience"), 1),
    "data": dict.fromkeys(("vocab_size", "read_examples", "train_examples", "mix_limit"), 1),
    "evaluation": dict.fromkeys(("limit", "beams", "max_new_tokens", "batch_tokens"), 1),
}
"""The smallest value of each setting that has one."""


def _check(settings: Settings) -> None:
    training, data = settings.training, settings.data
    ends = [name for name in ("steps", "tokens", "minutes") if getattr(training, name) is not None]
    if len(ends) > 1:
        raise ValueError(f"a run ends after steps, tokens or minutes, got {' and '.join(ends)}; leave one")
    for group, bounds in AT_LEAST.items():
        for name, least in bounds.items():
            value = getattr(getattr(settings, group), name)
            if value is not None and not value >= least:  # so that NaN is refused, too
                raise ValueError(f"{group}.{name} must be at least {least:g}, got {value:g}")
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
