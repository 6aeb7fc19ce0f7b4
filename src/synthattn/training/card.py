"""The card of a trained model: a README that says what it is, how good it is, and how to load it."""

from pathlib import Path

import yaml

from synthattn.messages import printable
from synthattn.saved_file import write_text
from synthattn.training.record import RunRecord

FILE = "README.md"
PIPELINES = {
    "SynthesizerForConditionalGeneration": "text2text-generation",
    "SynthesizerForCausalLM": "text-generation",
    "SynthesizerForSequenceClassification": "text-classification",
}
"""The name that model hubs have for what a model does."""
CITATION = """@inproceedings{tay2021synthesizer,
  title = {Synthesizer: Rethinking Self-Attention for Transformer Models},
  author = {Tay, Yi and Bahri, Dara and Metzler, Donald and Juan, Da-Cheng and Zhao, Zhe and Zheng, Che},
  booktitle = {International Conference on Machine Learning},
  year = {2021}
}"""


def write_card(model: Path, found: RunRecord) -> None:
    """Write the card of a model whose run is scored.

    Args:
        model: the folder of the model.
        found: the record of its run.
    """
    write_text(model / FILE, card(found))


def card(found: RunRecord) -> str:
    """Return a card: a head that model hubs read, then a text."""
    data, training = found.settings["data"], found.settings["training"]
    kind, sizes = found.model["class"], found.model["configuration"]
    attention = sizes["decoder_attention" if sizes["is_decoder"] else "encoder_attention"]
    if isinstance(attention, list):  # a spec for each layer
        attention = ", ".join(attention)
    head = {
        # Nobody but the owner of the data can say under which licence a model may be given away.
        "license": "unknown",
        "library_name": "synthattn",
        "tags": ["synthattn", "synthesizer", data["task"]],
    }
    if kind in PIPELINES:
        head["pipeline_tag"] = PIPELINES[kind]
    source = Path(data["source"]).name if "/" in data["source"] else data["source"]
    rows = [
        (_cell(name), f"{one['value']:,.4g}", f"{one['low']:,.4g} to {one['high']:,.4g}", _cell(one["definition"]))
        for name, one in found.scores.items()
    ]
    scores = [f"| {' | '.join(row)} |" for row in rows]
    splits = ", ".join(found.evaluation.get("splits", {}).values())
    return f"""---
{yaml.safe_dump(head, sort_keys=False)}---

# {_cell(data["task"])} with `{_cell(attention)}` attention

A {kind} with {found.model["parameters"]:,} parameters, trained by
synthattn {found.versions.get("synthattn", "")} for {found.steps:,} steps on {_cell(source)}, seed {training["seed"]}.

## Scores

{found.evaluation.get("examples", 0):,} examples of {_cell(splits)}, with bootstrap intervals over these examples.

| metric | value | 95 % | definition |
|---|---:|---:|---|
{chr(10).join(scores)}

## Use

```python
import synthattn.models  # tells transformers the classes
from transformers import AutoTokenizer

model = synthattn.models.{kind}.from_pretrained("path of this folder")
tokenizer = AutoTokenizer.from_pretrained("path of this folder")
```

`synthattn generate`, `evaluate` and `export` take this folder, too.

## Licence

Not stated. It depends on the data; write it here and at the top before you give the model away.

## Citation

```bibtex
{CITATION}
```
"""


def _cell(text: str) -> str:
    """Return text from outside as one that no Markdown table or heading breaks at."""
    return printable(str(text)).replace("|", "\\|").replace("<", "&lt;")
