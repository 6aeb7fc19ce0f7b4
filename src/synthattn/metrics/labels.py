"""Names of metrics as readers know them."""

import re

KNOWN = {
    "bleu": "BLEU",
    "tokenized-bleu": "tokenized BLEU",
    "chrf": "chrF",
    "meteor": "METEOR",
    "cider": "CIDEr-D",
    "cider-d": "CIDEr-D",
    "macro-f1": "macro F1",
    "f1": "F1",
    "matthews": "Matthews correlation",
    "token-perplexity": "perplexity per token",
    "word-perplexity": "perplexity per word",
    "bits-per-byte": "bits per byte",
}


def label(metric: str) -> str:
    """Return a metric's name for readers, such as ``ROUGE-1`` for ``rouge1``; in a suite after the task's name."""
    task, space, name = metric.rpartition(" ")
    if rouge := re.fullmatch(r"rouge-?(\w+)", name):
        shown = f"ROUGE-{rouge[1]}"
    elif bleu := re.fullmatch(r"bleu-(\d)", name):
        shown = f"BLEU-{bleu[1]}"
    else:
        shown = KNOWN.get(name, name)
    return f"{task}{space}{shown}"
