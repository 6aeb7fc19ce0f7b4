"""Change configurations of saved models at random, then try all commands that read a model.

An accepted configuration defines another model, and the command must use that model. The expected result is computed
without the code that reads folders: a model is built from the changed fields and gets the tensors of the file.

- ``describe``: the number of parameters equals the number of a model that was built. For a model that is too large to
  build, the expected number is a polynomial in the changed field, fitted to small models.
- ``generate``: the answers equal those of a plain loop without a cache, or the class of the largest logit.
- ``evaluate`` and ``train --start``: scores and trained weights equal those of the model built from the fields and
  saved by ``save_pretrained``.
"""

import copy
import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file
from transformers.utils import logging

from synthattn.data.tokenizers import train_tokenizer
from synthattn.models import presets
from synthattn.models.configuration import SynthesizerConfig
from synthattn.models.describe import MODELS
from tools.faults.in_process import Said, call, judge, memory_limit
from tools.faults.outcome import Outcome

WORDS = ["red", "blue", "old", "new", "small", "large", "house", "tree", "car", "dog", "cat", "sees", "has", "the"]
SIZES = {"d_model": 8, "num_heads": 2, "d_ff": 12, "max_position_embeddings": 16}
SPECS = ("vanilla", "random", "random+vanilla", "dense", "factorized_random(rank=3)+vanilla")
KINDS = {"seq2seq": "translation", "causal-lm": "language-modeling", "classifier": "classification"}
NEW_TOKENS = 4
MAKEABLE = 5_000_000
"""Maximum number of parameters of a model that is built to count them."""

ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, -7, 3, 2.5, 1e-9, 1e300, float("nan"), float("inf"), -float("inf"),
    2**31 - 1, 2**31, 2**63, 10**30, 10**9, 10**6, 50_000, "", "x", "8", "nan", "vanilla", "ramdom", "random(",
    "dense(window=3)", "random(std=inf)", "factorized_random(rank=999999999)", "linformer(k=999999999)",
    "lightconv(kernel=999999999)", "random+" * 40 + "random", "\x00", "\x1b[31m", "\ud800", "🦜" * 50, [], [1],
    ["vanilla"], ["vanilla", "random"], [None], {}, {"0": "a"}, {"x": 1}, {"__float__": "NaN"}, [[[[[]]]]],
    {"a": {"b": {"c": []}}},
)  # fmt: skip
EXTRA: tuple[tuple[str, Any], ...] = (
    ("note", "mine"), ("to_dict", 3), ("save_pretrained", "x"), ("auto_map", {"AutoConfig": "evil.Config"}),
    ("quantization_config", {"quant_method": "bitsandbytes", "load_in_8bit": True}),
    ("transformers_weights", "../other.bin"), ("configuration_files", ["config.other.json"]),
    ("per_layer_config", {"0": {"d_ff": 3}}), ("rope_scaling", 3), ("layer_types", ["dense", "sparse"]),
    ("hidden_size", 16), ("num_hidden_layers", 10**9), ("num_labels", 10**9), ("num_labels", "x"), ("num_labels", -1),
    ("id2label", ["a", "b"]), ("id2label", {"a": "b"}), ("id2label", {"0": "a", "2": "b"}), ("id2label", None),
    ("attn_implementation", "flash_attention_2"), ("output_attentions", "x"), ("output_attentions", True),
    ("return_dict", False), ("torch_dtype", "float16"), ("torch_dtype", "foo"), ("_name_or_path", 5),
    ("dtype", "Tensor"), ("dtype", "float64"), ("architectures", None), ("architectures", []), ("architectures", "x"),
    ("architectures", ["SynthesizerModel"]), ("architectures", ["T5Model"]), ("problem_type", "regression"),
)  # fmt: skip
OPTIONS = {
    "mix": ("softmax", "sum", "sigmoid"),
    "positions": ("sinusoidal", "learned", "relative", "none"),
    "norm": ("layernorm", "rmsnorm"),
    "norm_position": ("pre", "post"),
    "activation": ("relu", "gelu", "silu", "gated-relu"),
    "initializer": ("xavier", "fan_in"),
    "classifier_pooling": ("mean", "first"),
}
GROWING = (
    "vocab_size", "d_model", "d_ff", "encoder_layers", "decoder_layers", "max_position_embeddings", "relative_buckets",
    "relative_distance", "num_heads", "head_dim", "synthetic_heads", "synthetic_head_dim",
)  # fmt: skip
"""Fields that the number of parameters depends on as a polynomial of degree 2 or less."""


class Saved(NamedTuple):
    """A small saved model."""

    folder: Path
    kind: str
    tokenizer: Any


class Change(NamedTuple):
    """A changed configuration: the text of ``config.json``, and its fields if the text is an object."""

    text: str
    fields: dict[str, Any] | None
    description: str


def run(count: int, seed: int) -> Outcome:
    """Try ``count`` changed configurations."""
    outcome = Outcome("configurations")
    rng = random.Random(seed)
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as name, memory_limit():
        place = Path(name)
        before = os.environ.get("SYNTHATTN_CACHE")
        os.environ["SYNTHATTN_CACHE"] = str(place / "cache")
        try:
            models = _models(place)
            for number in range(count):
                saved = models[number % len(models)]
                change = _change(rng, saved.folder)
                verb = rng.choices(["describe", "generate", "evaluate", "train"], [8, 8, 3, 1])[0]
                if verb != "describe" and saved.kind not in KINDS:
                    verb = "describe"
                verdict, reason = _try(place, saved, change, verb)
                outcome.add(verdict, f"{verb} {saved.folder.name}: {change.description} (seed {seed}): {reason}")
        finally:
            os.environ.pop("SYNTHATTN_CACHE") if before is None else os.environ.update(SYNTHATTN_CACHE=before)
    return outcome


def _models(place: Path) -> list[Saved]:
    rng = random.Random(0)
    texts = {
        split: [" ".join(rng.choice(WORDS) for _ in range(rng.randint(2, 6))) for _ in range(lines)]
        for split, lines in (("train", 20), ("valid", 3), ("test", 4))
    }
    for split, lines in texts.items():
        labels = [("animal" if "dog" in line else "thing") for line in lines]
        files = {
            f"translation/{split}.en": lines,
            f"translation/{split}.de": [" ".join(reversed(line.split())) for line in lines],
            f"language-modeling/{split}.txt": lines,
            f"classification/{split}.tsv": ["text\tlabel", *map("\t".join, zip(lines, labels, strict=True))],
        }
        for name, content in files.items():
            (place / name).parent.mkdir(exist_ok=True)
            (place / name).write_text("".join(f"{line}\n" for line in content))
    tokenizer = train_tokenizer("words", texts["train"], 130)
    made = []
    for number, kind in enumerate((*KINDS, "masked-lm", "bare")):
        for spec in SPECS[number % 2 :: 2]:
            config = presets.tiny(spec, vocab_size=len(tokenizer), **SIZES, num_labels=2)
            torch.manual_seed(number)
            folder = place / f"{kind}-{spec}"
            model = MODELS[kind](config)
            if kind == "classifier":
                model.config.id2label, model.config.label2id = {0: "animal", 1: "thing"}, {"animal": 0, "thing": 1}
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            # Otherwise this file, not the configuration, would decide which tokens start and end a text.
            (folder / "generation_config.json").unlink(missing_ok=True)
            made.append(Saved(folder, kind, tokenizer))
    return made


def _change(rng: random.Random, folder: Path) -> Change:
    text = (folder / "config.json").read_text()
    if rng.random() < 0.05:
        damaged = rng.choice([text[: rng.randrange(len(text))], "", "null", "[]", "3", "[" * 9999, "{}", text + text])
        return Change(damaged, None, f"the text {damaged[:40]!r}")
    fields = json.loads(text)
    said = []
    for _ in range(1 if rng.random() < 0.8 else 2):
        name = rng.choice(sorted(fields))
        how = rng.random()
        if how < 0.1:
            del fields[name]
            said.append(f"no {name}")
            continue
        if how < 0.25:
            name, value = rng.choice(EXTRA)
        elif how < 0.35:
            name = rng.choice(sorted(OPTIONS))
            value = rng.choice(OPTIONS[name])
        elif how < 0.5:
            name = rng.choice(GROWING)
            near = fields.get(name) or 4
            value = rng.choice([near - 1, near + 1, 2 * near, 3 * near, 1000 * near, 10**6 * near]) if near else 2
        elif how < 0.6:
            name, value = rng.choice(["dropout", "attention_dropout", "use_cache", "ponder_weight", "norm_eps"]), 0.25
            value = bool(rng.randrange(2)) if name == "use_cache" else value
        else:
            value = rng.choice(ODD)
        fields[name] = value
        said.append(f"{name}={value!r:.60}")
    return Change(json.dumps(fields), fields, ", ".join(said))


def _try(place: Path, saved: Saved, change: Change, verb: str) -> tuple[Any, str]:
    folder = place / "changed"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(saved.folder, folder)
    (folder / "config.json").write_text(change.text)
    data = place / KINDS.get(saved.kind, "")
    if verb == "describe":
        said = call("describe", folder, "--json")
        return judge(said, lambda: _wrong_description(said, saved, change))
    if verb == "generate":
        texts = ["the dog sees the old house", "red car"]
        said = call("generate", folder, "--max-new-tokens", NEW_TOKENS, stdin="".join(f"{text}\n" for text in texts))
        return judge(said, lambda: _wrong_answers(said, saved, change, texts))
    command: Callable[[Path], Said]
    if verb == "evaluate":
        options = ["--task", KINDS[saved.kind], "--data", data, "--limit", 3, "--json", "--quiet"]
        command = lambda where: call("evaluate", where, *options)  # noqa: E731
        said = command(folder)
        return judge(said, lambda: _differs(said.out, command(_saved_anew(place, saved, change)).out))
    result = place / "run"

    def train(start: Path) -> tuple[Said, dict[str, Any]]:
        shutil.rmtree(result, ignore_errors=True)
        options = ["--task", KINDS[saved.kind], "--data", data, "--steps", 1, "--limit", 1, "--output", result]
        said = call("train", "--start", start, *options, "--set", "training.warmup=0", "--quiet")
        return said, load_file(result / "model" / "model.safetensors") if said.code == 0 else {}

    said, weights = train(folder)

    def wrong() -> str | None:
        expected = train(_saved_anew(place, saved, change))[1]
        same = weights.keys() == expected.keys() and all(weights[n].equal(expected[n]) for n in weights)
        return None if same and weights else "other weights than from the same model saved anew"

    return judge(said, wrong)


def _differs(found: str, expected: str) -> str | None:
    return None if found == expected else f"{found[:200]!r} is not {expected[:200]!r}"


def _made(saved: Saved, change: Change) -> Any:
    """Build a model from the changed fields with the tensors of the file, without reading the folder."""
    assert change.fields is not None, "text that is no object was accepted"
    fields = {name: value for name, value in change.fields.items() if name != "model_type"}
    model = MODELS[saved.kind](SynthesizerConfig(**copy.deepcopy(fields)))
    lacking, unknown = model.load_state_dict(load_file(saved.folder / "model.safetensors"), strict=False)
    assert not [*unknown, *(set(lacking) - {"lm_head.weight"})], "tensors that do not fit were accepted"
    model.tie_weights()
    model.config.return_dict = True
    return model.eval()


def _saved_anew(place: Path, saved: Saved, change: Change) -> Path:
    folder = place / "anew"
    shutil.rmtree(folder, ignore_errors=True)
    _made(saved, change).save_pretrained(folder)
    saved.tokenizer.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    return folder


def _wrong_description(said: Said, saved: Saved, change: Change) -> str | None:
    found = json.loads(said.out)
    assert change.fields is not None, "text that is no object was described"
    total, parts = found["parameters"]["total"], found["parameters"]
    if total != sum(parts.values()) - total:
        return f"the parts of {parts} do not sum to the total"
    if found["max_length"] != change.fields["max_position_embeddings"]:
        return f"max_length is {found['max_length']}"
    named = change.fields.get("architectures") or ["SynthesizerModel"]
    model_class = next(model for model in MODELS.values() if model.__name__ == named[0])
    expected = _count(model_class, change.fields, total)
    return None if total == expected else f"{total} parameters, expected {expected}"


def _count(model_class: Any, fields: dict[str, Any], total: int) -> Any:
    if total <= MAKEABLE:
        return _real_count(model_class, fields)
    # Only one field is large enough to matter.
    name = max((name for name in GROWING if isinstance(fields.get(name), int)), key=lambda name: fields[name])
    points: dict[int, int] = {}
    for value in (8, 16, 24, 32, 40, 48):
        if len(points) < 3:
            points[value] = _real_count(model_class, fields | {name: value})
    return _polynomial(points, fields[name])


def _real_count(model_class: Any, fields: dict[str, Any]) -> int:
    model = model_class(SynthesizerConfig(**{name: value for name, value in fields.items() if name != "model_type"}))
    return sum({id(parameter): parameter.numel() for parameter in model.parameters()}.values())


def _polynomial(points: dict[int, int], x: int) -> Fraction:
    """Evaluate Lagrange's polynomial through some points at ``x``."""
    total = Fraction(0)
    for a, y in points.items():
        term = Fraction(y)
        for b in points:
            if b != a:
                term *= Fraction(x - b, a - b)
        total += term
    return total


def _wrong_answers(said: Said, saved: Saved, change: Change, texts: list[str]) -> str | None:
    model = _made(saved, change)
    expected = [_answer(model, saved, text) for text in texts]
    return _differs(said.out, "".join(f"{one}\n" for one in expected))


@torch.no_grad()
def _answer(model: Any, saved: Saved, text: str) -> str:
    config, tokenizer = model.config, saved.tokenizer
    longest = config.max_position_embeddings
    ids = tokenizer(text).input_ids
    ids = ids if len(ids) <= longest else [*ids[: longest - 1], tokenizer.eos_token_id]
    if saved.kind == "classifier":
        return config.id2label[int(model(input_ids=torch.tensor([ids])).logits[0].argmax())]
    ends = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
    written = [config.decoder_start_token_id]
    if saved.kind == "causal-lm":
        new = min(NEW_TOKENS, longest - 2)
        read = tokenizer(text, add_special_tokens=False).input_ids[-(longest - new - 1) :]
        written += read
    else:
        new, read = min(NEW_TOKENS, longest - 1), []
    for _ in range(new):
        if saved.kind == "causal-lm":
            logits = model(input_ids=torch.tensor([written]), use_cache=False).logits
        else:
            given = {"input_ids": torch.tensor([ids]), "decoder_input_ids": torch.tensor([written])}
            logits = model(**given, use_cache=False).logits
        written.append(int(logits[0, -1].argmax()))
        if written[-1] in ends:
            break
    if saved.kind == "seq2seq":
        return tokenizer.decode(written, skip_special_tokens=True)
    before = tokenizer.decode(read, skip_special_tokens=True)
    return text + tokenizer.decode(written[1:], skip_special_tokens=True)[len(before) :]
