"""The results of the Synthesizer paper (Tay et al., ICML 2021) as data, to be read beside ours.

Numbers are as printed. Two versions of the paper count their tables differently, so some have a year: of the first
version (2020) or of the last (2021). Left out is what could not be confirmed: two rows of the GLUE and SuperGLUE of
2021 and, but for one number, the table of encoders. Where another paper has the same experiment, its rows say so.
"""

import math
import re
from dataclasses import dataclass

from synthattn.compare.results import Published


@dataclass(frozen=True)
class PaperColumn:
    """One measure on one data set."""

    data: str
    metric: str
    """As the paper calls it."""
    ours: str | None
    """Our metric that it is to be read beside; None for measures of cost."""
    words: frozenset[str] = frozenset()
    """Of which one in the name of some data says that this column is meant, where a table has several."""
    logarithm: bool = False
    """Whether the paper prints the natural logarithm of our metric."""


@dataclass(frozen=True)
class PaperRow:
    """One model."""

    name: str
    """As the paper calls it."""
    attention: str | None
    """The spec that builds it; None for models that differ from the others in more than their attention."""
    parameters: int | None
    """In millions."""
    values: tuple[float, ...]
    """One for each column; not a number where there is none."""
    source: str = ""
    """Where the numbers are from, if not from the paper itself."""
    doubt: str = ""
    """Why a reader should not trust the numbers, or what they are compared with."""


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper, or the part of one that is about the same models."""

    number: str
    title: str
    columns: tuple[PaperColumn, ...]
    rows: tuple[PaperRow, ...]
    note: str
    """What differs between their experiment and one that is read beside it."""
    source: str = "Tay et al., Synthesizer (2020, 2021)"
    doubt: str = ""
    """What speaks against all of it."""


NARANG = "Narang et al., Do Transformer Modifications Transfer Across Implementations and Applications? (2021)"
PARTLY = f"Tay et al., Synthesizer (2021), in part {NARANG}"
SHORT = {NARANG: "Narang et al., 2021", PARTLY: "in part Narang et al., 2021"}
_UNCONFIRMED = "the paper's own row could not be confirmed; this is the same experiment in another paper"

_NO_SEEDS = "Without seeds or intervals: small differences may be luck."
_PARTLY = "part of this row is from the later paper, which has the same runs; the paper's own is unconfirmed"

# Which BLEU it is, is not known. The first row is quoted from a paper of 2017, from before sacrebleu.
TABLE_2_TRANSLATION = PaperTable(
    "Table 2",
    "Machine translation",
    (
        PaperColumn(
            "WMT'14 English to German",
            "BLEU",
            "tokenized-bleu",
            frozenset({"de", "deu", "ger", "ende", "deen", "german", "deutsch"}),
        ),
        PaperColumn(
            "WMT'14 English to French",
            "BLEU",
            "tokenized-bleu",
            frozenset({"fr", "fra", "fre", "enfr", "fren", "french", "francais"}),
        ),
    ),
    (
        PaperRow("Transformer (Vaswani et al., 2017)", None, 68, (27.30, 38.10)),
        PaperRow("Transformer", "vanilla", 67, (27.67, 41.57), doubt="68 million in the version of 2020"),
        PaperRow("Transformer (Control)", None, 73, (27.97, 41.83), doubt="what was enlarged is not said"),
        PaperRow("Fixed Random", "fixed_random", 61, (23.89, 38.31)),
        PaperRow("Random", "random", 67, (27.27, 41.12)),
        PaperRow("Factorized Random", "factorized_random", 61, (27.30, 41.12)),
        PaperRow(
            "Dense",
            "dense",
            62,
            (27.43, 41.39),
            doubt="1 million more than Fixed Random is its second layer alone; the equations have another of 3 million",
        ),
        PaperRow("Factorized Dense", "factorized_dense", 61, (27.32, 41.57)),
        PaperRow(
            "Random + Dense",
            "random+dense",
            67,
            (27.68, 41.21),
            doubt="with the 62 million of Dense it would have at least 68",
        ),
        PaperRow(
            "Dense + Vanilla",
            "dense+vanilla",
            74,
            (27.57, 41.38),
            doubt="6 million more than Dense and the dot product explain",
        ),
        PaperRow("Random + Vanilla", "random+vanilla", 73, (28.47, 41.85)),
    ),
    "On WMT'14, without seeds or intervals; kind of BLEU, steps and batch are not known.",
    doubt=f"{_NO_SEEDS} All models have about 6 million parameters more than Tensor2Tensor's of these sizes; from "
    "what, is not known.",
)

# Whether per word or per token is not known. Tensor2Tensor's own model for LM1B has 43.2 per word, and exp(3.40), far
# less, per token: these are more like the former.
TABLE_2_LANGUAGE_MODELING = PaperTable(
    "Table 2",
    "Language modelling",
    (PaperColumn("LM1B", "perplexity", "word-perplexity"),),
    (
        PaperRow("Transformer", "vanilla", 70, (38.21,)),
        PaperRow("Fixed Random", "fixed_random", 53, (50.52,)),
        PaperRow("Random", "random", 58, (40.60,)),
        PaperRow("Factorized Random", "factorized_random", 53, (42.40,)),
        PaperRow("Dense", "dense", 53, (40.88,)),
        PaperRow("Factorized Dense", "factorized_dense", 53, (41.20,)),
        PaperRow("Random + Dense", "random+dense", 58, (42.35,)),
        PaperRow("Dense + Vanilla", "dense+vanilla", 70, (37.27,)),
        PaperRow("Random + Vanilla", "random+vanilla", 70, (40.05,)),
    ),
    "On LM1B, without seeds or intervals; steps are not known, nor whether perplexity is per word, which is likely, or "
    "per token.",
    doubt=f"{_NO_SEEDS} No single configuration has these numbers of parameters: the baseline, with 70 million to the "
    "Synthesizers' 53, may differ in more than its attention.",
)

TABLE_3_SUMMARIZATION = PaperTable(
    "Table 3",
    "Abstractive summarisation",
    (
        PaperColumn("CNN/DailyMail", "ROUGE-1", "rouge1"),
        PaperColumn("CNN/DailyMail", "ROUGE-2", "rouge2"),
        PaperColumn("CNN/DailyMail", "ROUGE-L", "rougeL"),
    ),
    (
        PaperRow("Transformer", "vanilla", None, (38.24, 17.10, 35.77)),
        PaperRow("Syn (R)", "random", None, (35.47, 14.92, 33.10)),
        PaperRow("Syn (D)", "dense", None, (36.05, 15.26, 33.70)),
        PaperRow("Syn (D+V)", "dense+vanilla", None, (38.57, 16.64, 36.02)),
        PaperRow("Syn (R+V)", "random+vanilla", None, (38.57, 16.24, 35.95)),
    ),
    "On CNN/DailyMail; size of the models and steps are not known, nor whether ROUGE-L is of texts, as our rougeL, or "
    "of sentences, as our rougeLsum.",
    doubt=_NO_SEEDS,
)

TABLE_3_DIALOGUE = PaperTable(
    "Table 3",
    "Dialogue",
    (
        PaperColumn("PersonaChat", "BLEU-1", "bleu-1"),
        PaperColumn("PersonaChat", "BLEU-4", "bleu-4"),
        PaperColumn("PersonaChat", "ROUGE-L", "rougeL"),
        PaperColumn("PersonaChat", "METEOR", "meteor"),
        PaperColumn("PersonaChat", "CIDEr", "cider"),
        # Of the three embedding similarities the paper does not say which.
        PaperColumn("PersonaChat", "Emb", "embedding-average"),
    ),
    (
        PaperRow("Transformer", "vanilla", None, (12.03, 3.20, 13.38, 5.89, 18.94, 83.43)),
        PaperRow("Syn (R)", "random", None, (14.64, 2.25, 15.00, 6.42, 19.57, 84.50)),
        PaperRow("Syn (D)", "dense", None, (15.58, 4.02, 15.22, 6.61, 20.54, 84.95)),
        PaperRow("Syn (D+V)", "dense+vanilla", None, (14.24, 3.57, 14.22, 6.32, 18.87, 84.21)),
        PaperRow("Syn (R+V)", "random+vanilla", None, (14.70, 2.28, 14.79, 6.39, 19.09, 84.54)),
    ),
    "On PersonaChat; size of the models and steps are not known, nor with which tools and word vectors they scored.",
    doubt=_NO_SEEDS,
)

TABLE_4_C4 = PaperTable(
    "Table 4 (2021)",
    "Masked language modelling",
    (
        PaperColumn("C4", "log perplexity", "token-perplexity", logarithm=True),
        PaperColumn("C4", "steps per second", None),
        PaperColumn("C4", "TFLOPs", None),
    ),
    (
        PaperRow("Transformer", "vanilla", 223, (1.865, 3.90, 3.70)),
        PaperRow("Dynamic Conv", "dynamicconv", 257, (2.040, 2.65, 3.93)),
        PaperRow("Lightweight Conv", None, 224, (1.990, 4.05, math.nan), source=NARANG, doubt=_UNCONFIRMED),
        PaperRow("Universal Transformer", None, 84, (2.111, 0.88, math.nan), source=NARANG, doubt=_UNCONFIRMED),
        PaperRow("Syn (D)", "dense", 224, (1.965, 3.61, 3.80), PARTLY, _PARTLY),
        PaperRow("Syn (R)", "random", 254, (1.972, 4.26, 3.36), PARTLY, _PARTLY),
        PaperRow(
            "Syn (FR)",
            None,
            207,
            (1.964, 4.10, math.nan),
            source=NARANG,
            doubt="its code makes one row of weights for all queries, which is not the paper's R1 R2^T",
        ),
        PaperRow("Syn (R+V)", "random+vanilla", 292, (1.849, 3.79, 4.03), PARTLY, _PARTLY),
        PaperRow("Syn (D+V)", "dense+vanilla", 243, (1.832, 3.34, 4.20), PARTLY, _PARTLY),
        PaperRow("Syn (R+V), alpha", None, 292, (1.856, 3.55, math.nan), source=NARANG),
        PaperRow("Syn (D+V), alpha", None, 243, (1.846, 3.11, math.nan), source=NARANG),
    ),
    "On C4, of the size of T5 base, about 524 thousand steps. Their mixtures are sums without weights, and their "
    "synthesizers have other heads (8 of 128) than vanilla (12 of 64).",
    doubt=f"{_NO_SEEDS} Rows differ in heads, inner width and parameters (292 against 223 million), and the "
    "configurations that were released add a relative position bias to Synthesizers alone, which by itself improves "
    "vanilla from 1.865 to 1.840. With that bias everywhere, Narang et al. (2021) have vanilla at 1.838, D+V at 1.840 "
    "and R+V at 1.842: no gain. The 60 % are against dynamic convolutions; against the Transformer, Random is 9 % "
    "faster and worse (1.972).",
)

_T5 = (
    "Of the size of T5 base, trained on C4, GLUE, SuperGLUE and SQuAD together, scored on validation data. Vanilla is "
    "their T5 (Base)."
)

_SUITE = f"{_NO_SEEDS} Captions call the models small, their scores are those of T5 base."

TABLE_4_GLUE = PaperTable(
    "Table 4 (2020)",
    "GLUE",
    (
        PaperColumn("GLUE", "GLUE", "glue"),
        PaperColumn("GLUE", "CoLA", "cola matthews"),
        PaperColumn("GLUE", "SST", "sst2 accuracy"),
        PaperColumn("GLUE", "MRPC", "mrpc f1"),
        PaperColumn("GLUE", "MRPC", "mrpc accuracy"),
        PaperColumn("GLUE", "STSB", "stsb pearson"),
        PaperColumn("GLUE", "STSB", "stsb spearman"),
        PaperColumn("GLUE", "QQP", "qqp f1"),
        PaperColumn("GLUE", "QQP", "qqp accuracy"),
        PaperColumn("GLUE", "MNLI", "mnli-matched accuracy"),
        PaperColumn("GLUE", "MNLI", "mnli-mismatched accuracy"),
        PaperColumn("GLUE", "QNLI", "qnli accuracy"),
        PaperColumn("GLUE", "RTE", "rte accuracy"),
    ),
    (
        PaperRow(
            "T5 (Base)", "vanilla", None, (83.5, 53.1, 92.2, 92.0, 88.7, 89.1, 88.9, 88.2, 91.2, 84.7, 85.0, 91.7, 76.9)
        ),
        PaperRow(
            "Syn (R)", "random", None, (75.1, 41.2, 91.2, 85.9, 79.4, 74.0, 74.3, 85.5, 89.0, 77.6, 78.1, 87.6, 59.2)
        ),
        PaperRow(
            "Syn (D)", "dense", None, (72.0, 18.9, 89.9, 86.4, 79.4, 75.3, 75.5, 85.2, 88.3, 77.4, 78.1, 86.9, 57.4)
        ),
        PaperRow(
            "Syn (D+V)",
            "dense+vanilla",
            None,
            (82.6, 48.6, 92.4, 91.2, 87.7, 88.9, 89.0, 88.6, 91.5, 84.3, 84.8, 91.7, 75.1),
        ),
        PaperRow(
            "Syn (R+V)",
            "random+vanilla",
            None,
            (84.1, 53.3, 92.2, 91.2, 87.7, 89.3, 88.9, 88.6, 91.4, 85.0, 84.6, 92.3, 81.2),
        ),
    ),
    _T5,
    doubt=_SUITE,
)

TABLE_5_SUPERGLUE = PaperTable(
    "Table 5 (2020)",
    "SuperGLUE",
    (
        PaperColumn("SuperGLUE", "SGLUE", "superglue"),
        PaperColumn("SuperGLUE", "BoolQ", "boolq accuracy"),
        PaperColumn("SuperGLUE", "CB", "cb macro-f1"),
        PaperColumn("SuperGLUE", "CB", "cb accuracy"),
        PaperColumn("SuperGLUE", "COPA", "copa accuracy"),
        PaperColumn("SuperGLUE", "MultiRC", "multirc f1a"),
        PaperColumn("SuperGLUE", "MultiRC", "multirc em"),
        PaperColumn("SuperGLUE", "ReCoRD", "record f1"),
        PaperColumn("SuperGLUE", "ReCoRD", "record em"),
        PaperColumn("SuperGLUE", "RTE", "superglue-rte accuracy"),
        PaperColumn("SuperGLUE", "WiC", "wic accuracy"),
        PaperColumn("SuperGLUE", "WSC", "wsc accuracy"),
    ),
    (
        PaperRow(
            "T5 (Base)", "vanilla", None, (70.3, 78.2, 72.1, 83.9, 59.0, 73.1, 32.1, 71.1, 70.3, 77.3, 65.8, 80.8)
        ),
        PaperRow("Syn (R)", "random", None, (61.1, 69.5, 54.6, 73.2, 60.0, 63.0, 15.7, 58.4, 57.4, 67.5, 64.4, 66.3)),
        PaperRow("Syn (D)", "dense", None, (58.5, 69.5, 51.7, 71.4, 51.0, 66.0, 15.8, 54.1, 53.0, 67.5, 65.2, 58.7)),
        PaperRow(
            "Syn (D+V)", "dense+vanilla", None, (69.7, 79.3, 74.3, 85.7, 64.0, 73.8, 33.7, 69.9, 69.2, 78.7, 64.3, 68.3)
        ),
        PaperRow(
            "Syn (R+V)",
            "random+vanilla",
            None,
            (72.2, 79.3, 82.7, 91.1, 64.0, 74.3, 34.9, 70.8, 69.9, 82.7, 64.6, 75.0),
        ),
    ),
    _T5,
    doubt=_SUITE,
)

# Of the encoders, compared on AG News and movie reviews, only the best number on AG News is confirmed, not whose it is.
ENCODERS = PaperTable(
    "Encoders (2021)",
    "Classification",
    (PaperColumn("AG News", "accuracy", "accuracy"),),
    (PaperRow("The best", None, None, (89.1,)),),
    "The paper's table could not be confirmed but for one number: the best of its models has 89.1 on AG News. That "
    "Factorized Random beats Linformer is its text.",
)

LONG_RANGE_ARENA = PaperTable(
    "Table 1",
    "Long Range Arena",
    (PaperColumn("ListOps", "accuracy", "accuracy"), PaperColumn("Text", "accuracy", "accuracy")),
    (
        PaperRow("Transformer", "vanilla", None, (36.37, 64.27)),
        PaperRow(
            "Synthesizer", None, None, (36.99, 61.68), doubt="as released, a sum of random and dot-product attention"
        ),
        PaperRow("Linformer", "linformer", None, (35.70, 53.94)),
    ),
    "ListOps of 500 to 2,000 tokens, film reviews of 1,000 bytes and more.",
    source="Tay et al., Long Range Arena (2021)",
)

TABLES = {
    "translation": TABLE_2_TRANSLATION,
    "language-modeling": TABLE_2_LANGUAGE_MODELING,
    "sentence-modeling": TABLE_2_LANGUAGE_MODELING,
    "summarization": TABLE_3_SUMMARIZATION,
    "dialogue": TABLE_3_DIALOGUE,
    "dialogue-turns": TABLE_3_DIALOGUE,
    "span-corruption": TABLE_4_C4,
    "glue": TABLE_4_GLUE,
    "superglue": TABLE_5_SUPERGLUE,
}
"""By task or suite. Classification has none: there is no number whose attention is known."""


def published(task: str, data: str) -> list[Published]:
    """What the paper has for a task or suite, by our metrics; nothing where it has nothing.

    Args:
        task: a name in ``synthattn.tasks.TASKS`` or ``SUITES``.
        data: where the data is from. Of English to German and English to French, its words choose one, or else both.
    """
    if task not in TABLES:
        return [found for table in (TABLE_4_GLUE, TABLE_5_SUPERGLUE) for found in _of_suite(table, task)]
    table = TABLES[task]
    words = set(re.findall("[a-z]+", data.lower()))
    named = [column for column in table.columns if column.words & words]
    return [_beside(table, column, column.ours) for column in named or table.columns if column.ours]


def _of_suite(table: PaperTable, task: str) -> list[Published]:
    """The columns of one task, whose metrics have the task in their names only where there are several."""
    found = []
    for column in table.columns:
        whose, _, metric = (column.ours or "").partition(" ")
        # MNLI is two tasks, its two sets.
        if metric and whose.removesuffix("-mismatched").removesuffix("-matched") == task:
            found.append(_beside(table, column, metric if whose == task else f"{whose} {metric}"))
    return found


def _beside(table: PaperTable, column: PaperColumn, metric: str) -> Published:
    place = table.columns.index(column)
    printed = {row.attention: row.values[place] for row in table.rows if row.attention}
    notes = [table.note]
    if sizes := [row.parameters for row in table.rows if row.attention and row.parameters]:
        notes.append(f"Their models have {min(sizes)} to {max(sizes)} million parameters.")
    if column.logarithm:
        shown = {attention: round(math.exp(value), 2) for attention, value in printed.items()}
        first = next(iter(printed))
        notes.append(f"The paper prints logarithms, such as {printed[first]} for {first}, which is {shown[first]}.")
        printed = shown
    return Published(f"{table.number}, {column.data}", metric, printed, " ".join(notes))
