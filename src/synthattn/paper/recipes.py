"""How each table is run, as functions that return full settings.

``tiny`` runs in seconds on generated data and shows that a table works; ``cpu`` takes two cores minutes for a row, on
small real data; ``long`` decides claims on the same data: more steps, three seeds, a learning rate for each row;
``paper`` has the paper's own sizes, steps and data, as far as they are known.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from synthattn.compare.plan import ONE_ANSWER, Study, StudyPart, StudyRow, with_seeds
from synthattn.messages import suggestion
from synthattn.paper.published import PRINTED, PaperTable
from synthattn.training.settings import DataSettings, EvaluationSettings, ModelSettings, Settings, TrainingSettings

Scale = Literal["tiny", "cpu", "long", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)
SMALL_DATA = ("cpu", "long")
"""Scales that read small real data from ``--data``."""
SPEED_ROUNDS = 11


@dataclass(frozen=True)
class PaperPart(StudyPart):
    """An experiment of a table of the paper.

    Args:
        published: the paper's table; its rows have the same names.
        published_data: data set of that table, where it has several.
        experiment: the experiment that this part is one row of; such rows are shown together.
    """

    published: PaperTable | None = None
    published_data: str = ""
    experiment: str = ""


def rate_for_each_row(part: PaperPart) -> tuple[PaperPart, ...]:
    """Give every model a part of its own, so that its learning rate is chosen by its own validation loss."""
    models = [row for row in part.rows if row.trained]
    if any(row.control for row in models):
        raise ValueError(f"{part.name} has a control, whose size depends on other rows of its part")
    others = tuple(row for row in part.rows if not row.trained)
    return tuple(
        dataclasses.replace(
            part, name=f"{part.name}-{row.key}", rows=(row, *(others if n == 0 else ())), rate_of=None,
            speed_rounds=0, looks="", experiment=part.name,
        )
        for n, row in enumerate(models)
    )  # fmt: skip


def whole(parts: Sequence[PaperPart]) -> PaperPart:
    """Return the experiment that several parts are the rows of; a part that stands alone is returned as it is."""
    first = parts[0]
    if not first.experiment:
        return first
    rows = [row for part in parts for row in part.rows]
    rows = [*(row for row in rows if row.trained), *(row for row in rows if not row.trained)]
    return dataclasses.replace(first, name=first.experiment, rows=tuple(rows), rates=(), experiment="")


def experiments(study: Study) -> list[list[PaperPart]]:
    """Return the parts of a study, those of one experiment together."""
    groups: dict[str, list[PaperPart]] = {}
    for part in study.parts:
        assert isinstance(part, PaperPart)
        groups.setdefault(part.experiment or part.name, []).append(part)
    return list(groups.values())


TRANSFORMER = StudyRow("Transformer", "vanilla")
FAMILY = (
    TRANSFORMER,
    StudyRow("Transformer (Control)", "vanilla", control=True),
    StudyRow("Fixed Random", "fixed_random"),
    StudyRow("Random", "random"),
    StudyRow("Factorized Random", "factorized_random"),
    StudyRow("Dense", "dense"),
    StudyRow("Factorized Dense", "factorized_dense"),
    StudyRow("Random + Dense", "random+dense"),
    StudyRow("Dense + Vanilla", "dense+vanilla"),
    StudyRow("Random + Vanilla", "random+vanilla"),
)
MAIN = ("Transformer", "Random", "Dense", "Random + Vanilla")
"""Of which several seeds are worth their time."""
SYNTHESIZERS = (
    StudyRow("Syn (R)", "random"),
    StudyRow("Syn (D)", "dense"),
    StudyRow("Syn (D+V)", "dense+vanilla"),
    StudyRow("Syn (R+V)", "random+vanilla"),
)
FIRST_WORDS = StudyRow("First words of the source", "")
CONSTANT_REPLY = StudyRow("Constant reply", "")
COPIED = StudyRow("Source copied", "")
UNIGRAM = StudyRow("Unigram model", "")
"""Knows how frequent each token is; the floor of language models."""
# Their mixtures on C4 are plain sums; with alpha, as the text has them, they are in Narang et al. (2021).
SUM, ALPHA = {"mix": "sum"}, {"mix": "sigmoid"}

RATES: dict[Scale, tuple[float, ...]] = {
    "tiny": (1e-3, 3e-3),
    "cpu": (1.5e-3, 3e-3, 6e-3, 1.2e-2),
    "long": (1.5e-3, 3e-3, 6e-3),
    "paper": (),
}
"""To choose from. The paper's own are known, or follow from the libraries that it used."""

GNMT = {"beams": 4, "length_penalty": 0.6, "length_penalty_form": "gnmt"}
"""How Tensor2Tensor and T5 decode."""

# Learning rates are what the formulas of the two libraries give at the end of the warm-up.
TENSOR2TENSOR = {"learning_rate": 1e-3, "warmup": 8000, "beta2": 0.997, "batch_tokens": 8 * 4096, "steps": 300_000}
ADAFACTOR = {"optimizer": "adafactor", "learning_rate": 1e-2, "warmup": 10_000}
T5 = ADAFACTOR | {"schedule": "t5", "batch_tokens": 65_536, "clip": 0.0, "label_smoothing": 0.0}
T5_TUNING = T5 | {"learning_rate": 5e-4, "warmup": 20_000, "schedule": "constant", "steps": 262_144, "keep": "best"}


@dataclass(frozen=True)
class Maker:
    """Chooses by scale; so each table says only what is its own."""

    scale: Scale
    folder: Path | None
    """Of small real data, one folder for each data set, for the scale ``cpu``."""

    def data(
        self, task: str, tiny: str, cpu: str, paper: str, columns: str = "", vocab_size: int = 0, **fields: Any
    ) -> DataSettings:
        """Sources by scale; those of ``cpu`` are names of folders, to be joined with `` + ``."""
        names = " + ".join(str((self.folder or Path()) / name) for name in cpu.split(" + "))
        source = {"tiny": tiny, "cpu": names, "paper": paper}[self.scale]
        size = {"tiny": 300, "cpu": 6000, "paper": vocab_size or 32_000}[self.scale]
        chosen: dict[str, Any] = {"vocab_size": size} | fields
        return DataSettings(source, task, columns, **chosen)

    def model(self, paper: str, **cpu: Any) -> ModelSettings:
        """A preset of the paper, or a small one with other fields; the kind of positions is the same at all scales."""
        small = {"tiny": "tiny", "cpu": "cpu"}
        kept = {name: value for name, value in cpu.items() if name == "positions"}
        fields = {"tiny": kept, "cpu": cpu, "paper": kept}[self.scale]
        return ModelSettings(small.get(self.scale, paper), fields=fields)

    def training(self, steps: int, paper: dict[str, Any], **cpu: Any) -> TrainingSettings:
        fields = {
            "tiny": {"precision": "fp32", "steps": 4, "batch_tokens": 256, "warmup": 2, "evaluate_tokens": 500},
            "cpu": {"precision": "fp32", "steps": steps, "batch_tokens": 2048, "warmup": 200, "schedule": "linear"}
            | cpu,
            "paper": {"precision": "bf16"} | paper,
        }[self.scale]
        return TrainingSettings(**fields)

    def evaluation(self, **fields: Any) -> EvaluationSettings:
        """Evaluate so little at the scale ``tiny`` that it only shows that it works."""
        if self.scale == "tiny":
            return EvaluationSettings(limit=6, max_new_tokens=8)
        return EvaluationSettings(**fields)

    def title(self, cpu: str, paper: str) -> str:
        return {"tiny": "generated examples", "cpu": cpu, "paper": paper}[self.scale]

    def note(self, cpu: str, paper: str = "") -> str:
        """How an experiment differs from the paper's."""
        found = {"tiny": "", "cpu": cpu, "paper": paper}[self.scale]
        return f"Here: {found}." if found else ""

    def seeds(
        self, rows: tuple[StudyRow, ...], count: int, names: tuple[str, ...] | None = None
    ) -> tuple[StudyRow, ...]:
        """Several seeds are for the scale ``cpu``, where they are affordable."""
        return with_seeds(rows, count, names) if self.scale == "cpu" else rows


def translation(make: Maker) -> tuple[PaperPart, ...]:
    """Table 2: English to German and to French."""
    # At the small scale four rows of French are enough to see whether it is like German.
    some = tuple(row for row in FAMILY if row.name in MAIN or make.scale == "paper")

    def part(name: str, language: str, word: str, rows: tuple[StudyRow, ...], **choice: Any) -> PaperPart:
        columns = "" if make.scale == "tiny" else f"source=en,target={language}"
        settings = Settings(
            make.data(
                "translation", "builtin:grammar-de?size=200", "multi30k", f"hub:wmt14/{language}-en", columns, 33_708
            ),
            make.model("transformer_base", max_position_embeddings=64),
            make.training(1500, TENSOR2TENSOR),
            make.evaluation(**GNMT, split="test2016" if make.scale == "cpu" else None),
        )
        title = make.title(f"Multi30k, English to {word}", f"WMT'14, English to {word}")
        metrics = ("bleu", "tokenized-bleu", "chrf")
        table, of = PRINTED["translation"], f"WMT'14 English to {word}"
        longer = (
            "; in docs/multi30k are four of them after 3,500 steps at half the rate, with a longer warm-up and "
            "averaged weights, and there they cannot be told apart"
        )
        note = make.note(
            "captions of images, short and simple beside the news of WMT'14, and few steps, of which those profit that "
            f"learn fast{longer if name == 'en-de' else ''}"
        )
        looks = "histograms" if name == "en-de" else ""
        about = {"published": table, "published_data": of, "note": note}
        return PaperPart(name, title, settings, rows, metrics, looks=looks, **about, **choice)

    floor = (COPIED,) if make.scale == "cpu" else ()
    german = part("en-de", "de", "German", (*make.seeds(FAMILY, 3, MAIN), *floor), rates=RATES[make.scale])
    if make.scale == "tiny":  # generated sentences are German
        return (german,)
    return german, part("en-fr", "fr", "French", (*some, *floor), rate_of="en-de")


def _news(make: Maker) -> Settings:
    return Settings(
        make.data("sentence-modeling", "builtin:grammar-de?size=200", "news_lm", "hub:lm1b", _text(make, "en")),
        make.model("lm1b_base", max_position_embeddings=64),
        make.training(1500, TENSOR2TENSOR | ADAFACTOR),
        make.evaluation(),
    )


def _text(make: Maker, column: str) -> str:
    return f"text={column}" if make.scale == "tiny" else ""


def lm1b(make: Maker) -> tuple[PaperPart, ...]:
    """Table 2: language modelling, sentence by sentence."""
    rows = tuple(row for row in FAMILY if make.scale != "paper" or not row.control)
    rows += (UNIGRAM,) if make.scale == "cpu" else ()
    return (
        PaperPart(
            "news",
            make.title("news sentences of WMT", "LM1B"),
            _news(make),
            rows,
            ("word-perplexity", "token-perplexity"),
            published=PRINTED["language modelling"],
            rates=RATES[make.scale],
            looks="histograms",
            note=make.note(
                "81 thousand sentences of news, where LM1B has 30 million; the end of a sentence counts in its loss, "
                "but not as a word"
            ),
        ),
    )


def generation(make: Maker) -> tuple[PaperPart, ...]:
    """Table 3: summarisation and dialogue."""
    rows = (TRANSFORMER, *SYNTHESIZERS)
    paper = TENSOR2TENSOR | {"steps": 100_000}
    model = make.model("transformer_base", max_position_embeddings=96)
    summaries = Settings(
        make.data("summarization", "builtin:summaries?size=200", "gigaword", "hub:cnn_dailymail"),
        make.model("transformer_base", max_position_embeddings=96)
        if make.scale != "paper"
        else ModelSettings("transformer_base", fields={"max_position_embeddings": 512}),
        make.training(1200, paper),
        make.evaluation(**GNMT),
    )
    dialogue = Settings(
        make.data("dialogue", "builtin:dialogue?size=200", "personachat", "hub:bavard/personachat_truecased"),
        model,
        make.training(1200, paper),
        make.evaluation(**GNMT, limit=2000 if make.scale == "cpu" else None),
    )
    talk = ("bleu-1", "bleu-4", "rougeL", "meteor", "cider", "embedding-average")
    rates = RATES[make.scale]
    summarised, spoken = make.title("Gigaword headlines", "CNN/DailyMail"), "PersonaChat"
    return (
        PaperPart(
            "summaries", summarised, summaries, (*rows, FIRST_WORDS), ("rouge1", "rouge2", "rougeL"),
            published=PRINTED["summarisation"], rates=rates,
            note=make.note(
                "headlines of single sentences, not summaries of articles; scored on the validation set, which also "
                "chose the learning rate",
                "steps and the longest article that is read are guesses",
            ),
        ),
        PaperPart(
            "dialogue", make.title(spoken, spoken), dialogue, (*rows, CONSTANT_REPLY), talk,
            published=PRINTED["dialogue"], rate_of="summaries", vectors=True,
            note=make.note(
                "10 thousand pairs to learn from; scored on the first 2,000 of the validation set", "steps are a guess"
            ),
        ),
    )  # fmt: skip


C4_ROWS = (
    TRANSFORMER,
    StudyRow("Dynamic Conv", "dynamicconv"),
    StudyRow("Lightweight Conv", "lightconv"),
    StudyRow("Universal Transformer", "vanilla", {"share_layers": True, "halting": True}),
    StudyRow("Syn (D)", "dense"),
    StudyRow("Syn (R)", "random"),
    StudyRow("Syn (FR)", "factorized_random"),
    StudyRow("Syn (D+V)", "dense+vanilla", SUM),
    StudyRow("Syn (R+V)", "random+vanilla", SUM),
    StudyRow("Syn (D+V), alpha", "dense+vanilla", ALPHA),
    StudyRow("Syn (R+V), alpha", "random+vanilla", ALPHA),
)


AUTHORS = {
    "dense": "dense(shared_keys=true, bias=false)",
    "factorized_random": "factorized_random(rank=16)",
    "dense+vanilla": "dense(shared_keys=true, shared_query=true, bias=false)+vanilla",
}
"""As the code has them that the paper's runs on C4 were made with: dense smaller than the equations say."""


def _c4_rows(make: Maker) -> tuple[StudyRow, ...]:
    if make.scale != "paper":
        return C4_ROWS
    return tuple(StudyRow(row.name, AUTHORS.get(row.attention, row.attention), row.fields) for row in C4_ROWS)


def c4(make: Maker) -> tuple[PaperPart, ...]:
    """Masked language modelling by span corruption: quality and speed."""
    settings = Settings(
        make.data(
            "span-corruption",
            "builtin:grammar-de?size=400",
            "wikitext2 + news_lm",
            "hub:c4",
            _text(make, "en"),
            32_128,
            # Enough for all steps; all of C4 has four times as many.
            read_examples=90_000_000 if make.scale == "paper" else None,
        ),
        make.model("c4_base", max_position_embeddings=256, positions="learned", dropout=0.0),
        make.training(1200, T5 | {"steps": 524_288}, batch_tokens=4096),
        make.evaluation(limit=1000 if make.scale == "cpu" else None),
    )
    return (
        PaperPart(
            "spans",
            make.title("WikiText-2 and news sentences", "C4"),
            settings,
            (*_c4_rows(make), *((UNIGRAM,) if make.scale == "cpu" else ())),
            ("token-perplexity",),
            published=PRINTED["c4"],
            rates=RATES[make.scale],
            speed_rounds=SPEED_ROUNDS,
            looks="histograms",
            note=make.note(
                "2 + 1.7 million words; scored on the first 1,000 pieces of the test sets, in which the two take turns",
                "norms without means and layers without biases, as in T5; the learning rate rises in the first 10,000 "
                "steps, where theirs was constant; convolutions and the Universal Transformer as their papers have "
                "them, which are smaller than what was trained for the table",
            ),
        ),
    )


T5_LIMIT = 524_288
"""Examples of a task that count when tasks are mixed, as in T5."""


def _suite(
    make: Maker, name: str, table: PaperTable, steps: int, cpu_rates: tuple[float, ...], cpu_limit: int
) -> tuple[PaperPart, ...]:
    wanted = ("Transformer", *(row.name for row in SYNTHESIZERS))
    rows = tuple(row for row in _c4_rows(make) if row.name in wanted)
    # There the paper calls the Transformer by another name.
    rows = tuple(dataclasses.replace(row, name="T5 (Base)") if row.name == "Transformer" else row for row in rows)
    data = make.data(name, f"builtin:{name}?size=60", name, {"glue": "hub:glue", "superglue": "hub:super_glue"}[name])
    settings = Settings(
        # Sizes and words are those of the models that these start from.
        DataSettings(data.source, data.task, mix_limit=cpu_limit if make.scale == "cpu" else T5_LIMIT),
        ModelSettings(),
        make.training(steps, T5_TUNING, label_smoothing=0.0),
        make.evaluation(limit=1000, max_new_tokens=16)
        if make.scale == "cpu"
        else make.evaluation(**GNMT, max_new_tokens={"glue": 84, "superglue": 62}[name]),
    )
    metrics = (name, *(column.ours for column in table.columns if column.ours and column.ours != name))
    title = make.title({"glue": "GLUE", "superglue": "SuperGLUE"}[name] + ", the tasks at hand", table.title)
    rates = {"tiny": (1e-3,), "cpu": cpu_rates, "paper": ()}[make.scale]
    note = make.note(
        "models of a few million parameters, trained on 4 million words and not on C4; some tasks have few examples, "
        "splits of their own (so that scores must not be compared with others'), or are missing; scored on at most "
        "1,000 examples of the validation set of each, which also chose the learning rate",
        "the suite is learned after C4, with the settings of Narang et al. (2021); the paper learned C4, both suites "
        "and SQuAD together",
    )
    names = {"tiny": (), "cpu": ("dropout",), "paper": ("dropout", "attention_dropout", "activation_dropout")}
    tuned = dict.fromkeys(names[make.scale], 0.1)
    return (
        PaperPart(
            "tuning",
            title,
            settings,
            (*rows, ONE_ANSWER),
            metrics,
            published=table,
            rates=rates,
            before=(Study("c4", make.scale, c4(make)), "spans"),
            tuned=tuned,
            note=note,
        ),
    )


def glue(make: Maker) -> tuple[PaperPart, ...]:
    """GLUE, text to text, all tasks together, from the models of ``c4``."""
    return _suite(make, "glue", PRINTED["glue"], 2400, (1e-3, 2e-3, 4e-3), T5_LIMIT)


def superglue(make: Maker) -> tuple[PaperPart, ...]:
    """SuperGLUE, likewise."""
    # In so few steps the passages of MultiRC would leave no time for any other task.
    return _suite(make, "superglue", PRINTED["superglue"], 1200, (5e-4, 1e-3), 2048)


LINFORMER = StudyRow("Linformer", "linformer")
ENCODERS = (
    TRANSFORMER,
    LINFORMER,
    StudyRow("Syn (FR)", "factorized_random"),
    StudyRow("Syn (FR+V)", "factorized_random+vanilla"),
    StudyRow("Syn (R)", "random"),
    StudyRow("Syn (D)", "dense"),
)


def encoding(make: Maker) -> tuple[PaperPart, ...]:
    """Encoders with a classifier, against Linformer: news and film reviews."""
    columns = "text=Source,label=Target" if make.scale == "tiny" else ""
    listops = "builtin:listops?size=200&longest=24"

    def part(
        name: str, title: str, paper: str, cpu_columns: str, length: int, steps: int, column: str, **choice: Any
    ) -> PaperPart:
        settings = Settings(
            make.data(
                "classification", listops, name, f"hub:{name}", columns or (cpu_columns if make.scale == "cpu" else "")
            ),
            make.model(
                "transformer_base",
                max_position_embeddings=length,
                encoder_layers=2,
                dropout=0.2,
                classifier_dropout=0.2,
            ),
            make.training(
                steps,
                {"steps": 15_000, "batch_tokens": 32_768, "learning_rate": 5e-4, "warmup": 1000, "keep": "best"},
                batch_tokens=4096,
                keep="best",
            ),
            make.evaluation(),
        )
        rows = (*make.seeds(ENCODERS, 3), ONE_ANSWER)
        note = make.note("", "sizes, steps and learning rate are guesses")
        about = make.title(title, paper)
        beside = {"published": PRINTED["encoders"], "published_data": column, "note": note}
        return PaperPart(name, about, settings, rows, ("accuracy",), **beside, **choice)

    news = part(
        "ag_news",
        "AG News, 11,600 articles",
        "AG News",
        "label=0,text=1+2?",
        96,
        800,
        "AG News",
        rates=RATES[make.scale],
    )
    films = part("imdb", "IMDb, 8,000 reviews", "IMDb", "", 256, 800, "IMDb", rate_of="ag_news")
    return (news,) if make.scale == "tiny" else (news, films)


def heads(make: Maker) -> tuple[PaperPart, ...]:
    """How many heads Random needs; the task that the paper used is not known, here it is language modelling."""
    counts = (1, 4) if make.scale == "tiny" else (1, 2, 4, 8, 16, 32)
    rows = tuple(StudyRow(f"Random, {n} head{'s' if n > 1 else ''}", "random", {"num_heads": n}) for n in counts)
    title = make.title("news sentences of WMT", "LM1B")
    note = (
        "Which task the paper used is not known; the numbers of its table could not be found. More heads are also more "
        "parameters, a matrix for each."
    )
    metrics = ("word-perplexity", "token-perplexity")
    rates = {"tiny": (1e-3,), "cpu": (6e-3,), "paper": ()}[
        make.scale
    ]  # the one that suits the Transformer of lm1b best
    return (PaperPart("heads", title, _news(make), rows, metrics, rates=rates, note=note),)


def lra(make: Maker) -> tuple[PaperPart, ...]:
    """Long Range Arena: ListOps, and film reviews byte by byte."""
    # What was released as Synthesizer there is a sum of random and dot-product attention.
    rows = (
        TRANSFORMER,
        StudyRow("Synthesizer", "random+vanilla", SUM),
        StudyRow("Random", "random"),
        LINFORMER,
        ONE_ANSWER,
    )
    paper = {"learning_rate": 5e-4, "warmup": 1000, "steps": 5000, "batch_tokens": 32 * 2000}

    def part(name: str, settings: Settings, title: str, column: str, **choice: Any) -> PaperPart:
        beside = {"published": PRINTED["long range arena"], "published_data": column}
        return PaperPart(name, title, settings, rows, ("accuracy",), **beside, **choice)

    def model(length: int, **paper_fields: Any) -> ModelSettings:
        if make.scale == "paper":
            return ModelSettings("transformer_base", fields={"encoder_layers": 4, "d_ff": 1024} | paper_fields)
        return make.model("transformer_base", max_position_embeddings=length, encoder_layers=2)

    generated = "builtin:listops?size=90000&shortest=500&longest=2000"
    listops = Settings(
        make.data(
            "listops", "builtin:listops?size=200&longest=24", "listops", generated, vocab_size=200, tokenizer="words"
        ),
        model(256, max_position_embeddings=2000),
        make.training(1200, paper, batch_tokens=4096, keep="best"),
        make.evaluation(),
    )
    text = Settings(
        make.data("classification", "builtin:grammar-de?size=9", "imdb", "hub:imdb", vocab_size=384, tokenizer="bytes"),
        model(512, max_position_embeddings=1000, d_model=256, num_heads=4),
        make.training(600, paper | {"steps": 20_000, "batch_tokens": 32 * 1000}, batch_tokens=8192, keep="best"),
        make.evaluation(limit=2000 if make.scale == "cpu" else None),
    )
    parts = (
        part(
            "listops", listops, make.title("ListOps, up to 256 tokens", "ListOps"), "ListOps", rates=RATES[make.scale]
        ),
        part("text", text, make.title("IMDb, 512 bytes", "IMDb, 1,000 bytes"), "Text", rate_of="listops"),
    )
    return parts[:1] if make.scale == "tiny" else parts


# Longer runs -------------------------------------------------------------------------------------------------------


def _longer(part: PaperPart, rows: tuple[StudyRow, ...], seeds: int = 3, **changes: Any) -> PaperPart:
    """Return a part of the scale ``cpu`` with other rows and settings, a grid of rates, and several seeds."""
    settings = part.settings.changed(**changes)
    return dataclasses.replace(part, settings=settings, rows=with_seeds(rows, seeds), rates=RATES["long"], note="")


def _translation(make: Maker) -> tuple[PaperPart, ...]:
    names = (
        "Transformer",
        "Random",
        "Fixed Random",
        "Dense",
        "Factorized Random",
        "Random + Vanilla",
        "Dense + Vanilla",
    )
    rows = tuple(row for row in FAMILY if row.name in names)
    return rate_for_each_row(_longer(translation(make)[0], (*rows, COPIED), training__steps=3500))


def _lm1b(make: Maker) -> tuple[PaperPart, ...]:
    (part,) = lm1b(make)
    rows = (*(row for row in FAMILY if not row.control), UNIGRAM)
    names = " + ".join(str((make.folder or Path()) / name) for name in ("news_lm", "wikitext2"))
    return rate_for_each_row(_longer(part, rows, data__source=names, data__vocab_size=2000, training__steps=3000))


def _c4(make: Maker) -> tuple[PaperPart, ...]:
    (part,) = c4(make)
    rows = (
        TRANSFORMER,
        *SYNTHESIZERS[:2],
        StudyRow("Fixed Random", "fixed_random"),
        StudyRow("No attention", "lightconv(kernel=1)"),
        *(row for row in C4_ROWS if "+V" in row.name and "alpha" not in row.name),
        StudyRow("Syn (D+V), softmax", "dense+vanilla", {"mix": "softmax"}),
        StudyRow("Syn (R+V), softmax", "random+vanilla", {"mix": "softmax"}),
        UNIGRAM,
    )
    return rate_for_each_row(_longer(part, rows))


def _encoding(make: Maker) -> tuple[PaperPart, ...]:
    news, films = encoding(make)
    pairs = dataclasses.replace(
        news,
        name="snli",
        title="SNLI, pairs of sentences",
        settings=news.settings.changed(
            data__source=str((make.folder or Path()) / "glue" / "SNLI"),
            data__columns="label=label,text=premise+hypothesis",
        ),
        published=None,
        published_data="",
    )
    return tuple(
        row
        for part in (news, films, pairs)
        for row in rate_for_each_row(_longer(part, (*ENCODERS, ONE_ANSWER), training__steps=1600))
    )


def _heads(make: Maker) -> tuple[PaperPart, ...]:
    rows = tuple(
        StudyRow(f"{name}, {n} head{'s' if n > 1 else ''}", attention, {"num_heads": n})
        for name, attention in (("Random", "random"), ("Transformer", "vanilla"))
        for n in (1, 2, 4, 8, 16)
    )
    part = dataclasses.replace(lra(make)[0], name="heads", published=None, published_data="")
    return rate_for_each_row(_longer(part, (*rows, ONE_ANSWER)))


def _lra(make: Maker) -> tuple[PaperPart, ...]:
    return tuple(row for part in lra(make) for row in rate_for_each_row(_longer(part, part.rows)))


TABLES: dict[str, Callable[[Maker], tuple[PaperPart, ...]]] = {
    table.__name__: table for table in (translation, lm1b, generation, c4, glue, superglue, encoding, heads, lra)
}
"""Those that are trained; ``table1`` and ``analysis`` are computed, see :mod:`synthattn.paper`."""
LONG = {
    "translation": _translation, "lm1b": _lm1b, "c4": _c4, "encoding": _encoding, "heads": _heads, "lra": _lra,
}  # fmt: skip
"""Tables that the scale ``long`` has. Models of this size stay below the floors of the others."""


def recipe(table: str, scale: Scale, data: Path | None = None) -> Study:
    """How a table is run at a scale.

    Args:
        table: a name in ``TABLES``.
        scale: ``tiny``, ``cpu``, ``long`` or ``paper``; a table that ``long`` does not have has no parts there.
        data: the folder with the data of the scales ``cpu`` and ``long``.
    """
    if table not in TABLES:
        raise ValueError(f"there is no table {table!r}{suggestion(table, TABLES)}")
    if scale not in SCALES:
        raise ValueError(f"there is no scale {scale!r}, only {', '.join(SCALES)}")
    if scale == "long":
        return Study(table, scale, LONG[table](Maker("cpu", data)) if table in LONG else ())
    return Study(table, scale, TABLES[table](Maker(scale, data)))
