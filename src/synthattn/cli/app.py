"""Options and verbs of the command. Heavy imports come only when a verb runs, so that ``--help`` is fast."""

import errno
import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from synthattn import __version__
from synthattn.messages import printable

UsageError: Any = typer.BadParameter.__bases__[0]
"""Base class of command-line errors; some releases of typer use click's class, others a copy of it."""


class Verbs(TyperGroup):
    """The verbs. Ctrl-C ends any of them with one line, unless the verb says more itself."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            print("synthattn: stopped", file=sys.stderr)
            raise typer.Exit(130) from None


app = typer.Typer(
    name="synthattn",
    cls=Verbs,
    help="Does your Transformer need dot-product attention? Synthesizer models (Tay et al. 2021).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

OPTIONS: dict[str, tuple[str, Any, str]] = {
    "task": ("data.task", str, "The task: translation, language-modeling, classification, glue, ..."),
    "data": ("data.source", str, "A folder, a file, hub:NAME or builtin:NAME; built-in data by default."),
    "preset": ("model.preset", str, "Sizes of the model: demo, cpu, transformer_base, t5_small, ..."),
    "start": ("model.start", str, "Start from the weights of this saved model, run or comparison (its best run)."),
    "steps": ("training.steps", int, "Train for this many steps; 2000 by default."),
    "tokens": ("training.tokens", int, "Train on this many tokens."),
    "minutes": ("training.minutes", float, "Train for this many minutes."),
    "batch_tokens": ("training.batch_tokens", int, "Maximum tokens in a batch of all processes together."),
    "learning_rate": ("training.learning_rate", float, "The highest learning rate."),
    "vocab_size": ("data.vocab_size", int, "Tokens in the vocabulary of the tokenizer."),
    "max_length": ("model.max_position_embeddings", int, "Maximum tokens of an input, the paper's N."),
    "columns": ("data.columns", str, "Columns of the data for fields of the task: label=0,text=1+2."),
    "direction": ("data.direction", str, "Direction of a translation, such as de-en; by default from en."),
    "skip_bad": ("data.skip_bad", bool, "Leave out what is broken or empty, and count it."),
    "beams": ("evaluation.beams", int, "Width of beam search; 1 is greedy."),
    "split": ("evaluation.split", str, "The split to score; by default test, or validation."),
    "limit": ("evaluation.limit", int, "Score only this many examples."),
    "vectors": ("evaluation.vectors", str, "Word vectors for embedding metrics; the model's own by default."),
    "seed": ("training.seed", int, "Seed of initial weights, example order and dropout."),
}
"""Options that are settings: the setting, its type, and the help."""
RUN_OPTIONS = [name for name in OPTIONS if name not in ("start", "vectors")]


def with_settings(names: Iterable[str]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add options that are settings to a verb, which gets them by the name of the setting, as in ``data__task``."""

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(verb)
        def wrapped(**given: Any) -> None:
            verb(**given | {OPTIONS[name][0].replace(".", "__"): given.pop(name) for name in names})

        added = {
            name: inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_option(name))
            for name in names
        }
        first = [added.pop(name) for name in ("task", "data") if name in added]
        own = [one for one in inspect.signature(verb).parameters.values() if one.kind != one.VAR_KEYWORD]
        every = [one.replace(kind=one.KEYWORD_ONLY) for one in (*first, *own, *added.values())]
        wrapped.__signature__ = inspect.Signature(every)  # pyright: ignore[reportAttributeAccessIssue]
        wrapped.__annotations__ = {one.name: one.annotation for one in every}
        return wrapped

    return decorate


def _option(name: str) -> Any:
    _, kind, text = OPTIONS[name]
    return Annotated[kind | None, typer.Option(f"--{name.replace('_', '-')}", help=text)]


Config = Annotated[Path | None, typer.Option(help="A YAML file of settings; other options override it.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any setting: training.warmup=500, model.d_model=128; may be given several times."),
]
LongestText = Annotated[
    int | None,
    typer.Option(help="Longest text, in tokens; longer ones are cut. By default 128, or all positions of the model."),
]
Jobs = Annotated[int | None, typer.Option(help="Runs at the same time; by default as many as cores and memory allow.")]
Executor = Annotated[str, typer.Option(help="What makes the runs: local, or ray for a cluster that is running.")]
Address = Annotated[
    str | None, typer.Option(help="Ray cluster that this machine belongs to: auto or HOST:PORT.", show_default=False)
]
Gpus = Annotated[
    float | None, typer.Option(help="Part of an accelerator for each run on a cluster; by default 1, if there are any.")
]
Output = Annotated[Path | None, typer.Option(help="The folder for all results; by default a new one in runs/.")]
What = Annotated[
    Path,
    typer.Argument(help="The folder of a run, a saved model or a comparison.", metavar="WHAT", show_default=False),
]
Run = Annotated[
    str | None, typer.Option(help="The run of a comparison, such as random-0; by default the one that scores best.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print only errors.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _print_version(wanted: bool) -> bool:
    if wanted:
        print(f"synthattn {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def _command(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
@with_settings(RUN_OPTIONS)
def compare(
    attention: Annotated[
        str | None,
        typer.Option(
            help="Attention to compare, such as 'vanilla,random,dense(window=15)'; by default the paper's variants."
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Runs per variant; 3 or more show the variation by chance.")] = None,
    control: Annotated[
        bool, typer.Option("--control", help="Add a vanilla model with as many parameters as the largest variant.")
    ] = False,
    config: Config = None,
    overrides: Set = None,
    jobs: Jobs = None,
    threads: Annotated[int | None, typer.Option(help="Threads of each run; by default so that all cores work.")] = None,
    executor: Executor = "local",
    address: Address = None,
    gpus: Gpus = None,
    budget: Annotated[
        str | None, typer.Option(help="Time for everything, such as 30min or 2h; it decides the number of steps.")
    ] = None,
    output: Output = None,
    resume: Annotated[Path | None, typer.Option(help="Resume a comparison that was stopped.")] = None,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Train each kind of attention under equal conditions; score it, time it, and report.

    Without options: language modelling on built-in data with all of the paper's variants, in minutes.
    """
    from synthattn.cli import compare as verb

    code = verb.run(
        settings, attention, quiet, seeds=seeds, control=control, config=config, overrides=overrides or [], jobs=jobs,
        threads=threads, executor=executor, address=address, gpus=gpus, budget=budget, output=output, resume=resume,
    )  # fmt: skip
    raise typer.Exit(code)


@app.command()
@with_settings([*RUN_OPTIONS, "start"])
def train(
    attention: Annotated[str | None, typer.Option(help="Attention of all layers, such as 'random+vanilla'.")] = None,
    config: Config = None,
    overrides: Set = None,
    output: Output = None,
    resume: Annotated[Path | None, typer.Option(help="Resume a run that was stopped.")] = None,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Train and score one model, and write the record of the run."""
    from synthattn.cli import train as verb

    options = {"attention": attention, "config": config, "overrides": overrides or [], "output": output}
    raise typer.Exit(verb.run(settings, quiet, resume=resume, **options))


@app.command()
@with_settings(["task", "data", "columns", "split", "limit", "beams", "vectors"])
def evaluate(
    what: Annotated[
        Path,
        typer.Argument(
            help="The folder of a run, a saved model or a comparison, or a file with one prediction per line.",
            metavar="WHAT",
            show_default=False,
        ),
    ],
    run: Run = None,
    output: Annotated[Path | None, typer.Option(help="A folder for scores and predictions.")] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    **settings: Any,
) -> None:
    """Score a run, a saved model, or a file of predictions."""
    from synthattn.cli import evaluate as verb

    raise typer.Exit(verb.run(what, settings, run, output, quiet, as_json))


@app.command()
def generate(
    what: What,
    file: Annotated[
        Path | None, typer.Argument(help="Texts, one per line; standard input by default.", show_default=False)
    ] = None,
    run: Run = None,
    beams: Annotated[int, typer.Option(help="Width of beam search; 1 is greedy.")] = 1,
    max_new_tokens: Annotated[int | None, typer.Option(help="Maximum tokens of an answer.")] = None,
    temperature: Annotated[
        float,
        typer.Option(help="Sampling temperature of models that continue a text; 0 does not sample."),
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of the sampling.")] = 0,
    batch: Annotated[int, typer.Option(help="Texts per batch.")] = 16,
    raw: Annotated[bool, typer.Option("--raw", help="Pass texts to the model without the prefix of its task.")] = False,
) -> None:
    """Answer texts line by line: translate, summarise, reply, classify, or continue them."""
    from synthattn.cli import generate as verb

    raise typer.Exit(verb.run(what, run, file, beams, max_new_tokens, batch, temperature, seed, raw))


@app.command()
def export(
    what: What,
    form: Annotated[str, typer.Option("--format", help="torch (a .pt2 file of torch.export) or onnx.")] = "torch",
    run: Run = None,
    output: Annotated[
        Path | None, typer.Option(help="The file; by default model.pt2 or model.onnx in the folder.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Export a trained model as one file, after a check that it gives the same outputs.

    The format onnx needs the extra of that name, as the error says.
    """
    from synthattn.cli import export as verb

    raise typer.Exit(verb.run(what, form, run, output, quiet))


@app.command()
def describe(
    model: Annotated[str, typer.Argument(help="A preset (such as transformer_base), or the folder of a saved model.")],
    attention: Annotated[str | None, typer.Option(help="Attention of both stacks, such as 'random+vanilla'.")] = None,
    kind: Annotated[
        str | None,
        typer.Option(help="seq2seq, causal-lm, masked-lm, classifier or bare; by default the model's own kind."),
    ] = None,
    length: Annotated[int | None, typer.Option(help="Input length for operations; the maximum by default.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Count a model's parameters, operations and decoding memory without building it."""
    from synthattn.cli import describe as verb

    verb.run(model, attention, kind, length, as_json)


@app.command()
def probe(
    model: Annotated[str, typer.Argument(help="The folder of a model of transformers, with its tokenizer.")],
    data: Annotated[
        Path, typer.Option(help="A file with a text per line; for a classifier, a tab and a label behind.")
    ],
    max_length: LongestText = None,
    limit: Annotated[int, typer.Option(help="Number of texts: half for the mean, half for the effects.")] = 400,
    batch: Annotated[int, typer.Option(help="Texts in a batch.")] = 16,
    heads: Annotated[bool, typer.Option("--heads", help="Also measure each head alone, which takes longer.")] = False,
    report: Annotated[Path | None, typer.Option(help="Write a page with charts to this HTML file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure which layers of a trained model need their dot products, without training."""
    from synthattn.cli import probe as verb

    verb.run(model, data, max_length, limit, batch, heads, report, as_json)


@app.command()
def convert(
    model: Annotated[str, typer.Argument(help="The folder of a model of transformers, with its tokenizer.")],
    data: Annotated[
        Path, typer.Option(help="A file with a text per line; for a classifier, a tab and a label behind.")
    ],
    layers: Annotated[
        str, typer.Option(help="auto: as many as the budget allows; first:6; or numbers such as 0,1,2.")
    ] = "auto",
    budget_kl: Annotated[
        float, typer.Option(help="For auto: the highest KL from the original before tuning, in nats per prediction.")
    ] = 0.02,
    attention: Annotated[str, typer.Option(help="random: a table of positions; toeplitz: of distances.")] = "random",
    steps: Annotated[int, typer.Option(help="Steps of tuning; none by default.")] = 0,
    loss: Annotated[
        str, typer.Option(help="distill: learn the predictions of the original; task: learn the right answers.")
    ] = "distill",
    hidden: Annotated[bool, typer.Option("--hidden", help="Also learn the hidden states of the original.")] = False,
    trained: Annotated[
        str,
        typer.Option("--train", help="tables: only these; layers: the layers that hold them; all: the whole model."),
    ] = "layers",
    learning_rate: Annotated[float, typer.Option(help="The highest learning rate; tables have ten times that.")] = 1e-4,
    seed: Annotated[int, typer.Option(help="Seed of the parts of the data, the order of texts, and the draws.")] = 0,
    max_length: LongestText = None,
    limit: Annotated[
        int,
        typer.Option(help="Number of texts: half for tables and tuning, a quarter to choose, a quarter to evaluate."),
    ] = 2000,
    batch: Annotated[int, typer.Option(help="Texts in a batch.")] = 16,
    output: Annotated[
        Path | None, typer.Option(help="The folder to write; by default the name of the model and -converted.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an equal command that was stopped.")] = False,
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Replace dot products of a trained model by tables, tune it if wanted, and evaluate it beside controls."""
    from synthattn.cli import convert as verb

    wanted = verb.ConvertOptions(attention, layers, budget_kl, max_length, limit, batch)
    tuning = {"steps": steps, "loss": loss, "hidden": hidden, "train": trained}
    tuning |= {"learning_rate": learning_rate, "seed": seed}
    raise typer.Exit(verb.run(model, data, wanted, tuning, output, resume, quiet, as_json))


@app.command()
def bench(
    kind: Annotated[
        str | None,
        typer.Argument(help="layer, model, train or decode; all by default.", show_default=False),
    ] = None,
    attention: Annotated[
        str | None, typer.Option(help="Attention to measure, such as 'random,dense+vanilla'; all by default.")
    ] = None,
    shapes: Annotated[str | None, typer.Option(help="Shapes BATCHxLENGTH, such as 16x512,4x2048.")] = None,
    lengths: Annotated[
        str | None, typer.Option(help="Measure growth with the length at batch 1: 128,512,2048,8192.")
    ] = None,
    batches: Annotated[str | None, typer.Option(help="Measure growth with the batch at length 512: 1,4,16,64.")] = None,
    masks: Annotated[str | None, typer.Option(help="full, causal, padded; all for layers, else full.")] = None,
    modes: Annotated[str | None, typer.Option(help="Modes of layers: eval, train.")] = None,
    beams: Annotated[str, typer.Option(help="Beam widths of generation.")] = "1,4",
    rounds: Annotated[int, typer.Option(help="Interleaved rounds, whose median is reported.")] = 7,
    peers: Annotated[
        bool, typer.Option("--peers", help="Add linformer and x-transformers; pip install 'synthattn\\[peers]'.")
    ] = False,
    memory: Annotated[bool, typer.Option(help="Measure peak memory, each contender in its own process.")] = True,
    device: Annotated[str, typer.Option(help="cpu, or cuda for layers.")] = "cpu",
    json_file: Annotated[Path | None, typer.Option("--json", help="Save all figures in this file.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume with the file of --json.")] = False,
    report: Annotated[Path | None, typer.Option(help="Write a page with plots to this HTML file.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the tables to this Markdown file.")] = None,
    show: Annotated[
        list[Path] | None, typer.Option(help="Show files of --json without measuring; may be given several times.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Measure time and memory beside fused dot products and other libraries, as ratios within one run."""
    from synthattn.cli import bench as verb

    wanted = verb.Wanted(kind, attention, shapes, lengths, batches, masks, modes, beams, rounds, peers, memory, device)
    raise typer.Exit(verb.run(wanted, show or [], resume, json_file, report, markdown, quiet))


@app.command()
def reproduce(
    table: Annotated[
        str,
        typer.Argument(
            help="translation, lm1b, generation, c4, glue, superglue, encoding, heads, lra, table1, analysis, or all.",
            metavar="TABLE",
            show_default=False,
        ),
    ] = "",
    scale: Annotated[
        str,
        typer.Option(
            help="tiny: seconds, to test that it works; cpu: minutes per row; long: hours per row, to decide claims; "
            "paper: the paper's own sizes."
        ),
    ] = "tiny",
    data: Annotated[
        Path | None, typer.Option(help="For cpu: a folder with one folder per data set, such as multi30k, news_lm.")
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(help="Only these rows and the baseline, such as 'random,dense+vanilla'."),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Runs per row; by default the recipe's own number.")] = None,
    output: Annotated[Path, typer.Option(help="Folder for records, tables and pages.")] = Path("results"),
    work: Annotated[Path, typer.Option(help="Folder for models and checkpoints.")] = Path("runs/reproduce"),
    resume: Annotated[bool, typer.Option("--resume", help="Resume from existing results.")] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Write tables and pages from the records in --output without training.")
    ] = False,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Print parameters, operations and hours of each row without training.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Recompute every number of all pages in --output; fail on a difference.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(help="Runs at the same time; by default one, on a cluster all that fit.")
    ] = (None),
    executor: Executor = "local",
    address: Address = None,
    gpus: Gpus = None,
    quiet: Quiet = False,
) -> None:
    """Reproduce a table of the paper: published numbers, own numbers, and which claims hold."""
    from synthattn.cli import reproduce as verb

    if not table and not check:
        raise typer.BadParameter("name a table, or all", param_hint="TABLE")
    made_by = jobs, executor, address, gpus
    given = table, scale, data, rows, seeds, output, work, resume, show, estimate, quiet, check
    raise typer.Exit(verb.run(*given, *made_by))


@app.command()
def study(
    name: Annotated[str, typer.Argument(help="abilities, positions or layers.", metavar="NAME", show_default=False)],
    attention: Annotated[
        str | None, typer.Option(help="For abilities and positions: variants, such as vanilla,random,random+vanilla.")
    ] = None,
    abilities: Annotated[str | None, typer.Option(help="Only these abilities, such as recall,reversal.")] = None,
    data: Annotated[
        str | None, typer.Option(help="For positions and layers: texts, as for train; by default builtin:docs.")
    ] = None,
    probe: Annotated[
        str | None, typer.Option(help="For layers: docs/convert/study.json, to show pretrained models beside.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Runs of each row; 3 unless given.")] = None,
    steps: Annotated[int | None, typer.Option(help="Steps of each run.")] = None,
    output: Annotated[Path, typer.Option(help="Folder for record, page and picture.")] = Path("results"),
    work: Annotated[Path, typer.Option(help="Folder for models, and for runs that are done.")] = Path("runs/study"),
    jobs: Annotated[int, typer.Option(help="Runs at the same time.")] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what is in the folder --work.")] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Write page and picture from the record, without training.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Run a study beyond the paper: abilities on generated tasks, positions and layers of language models."""
    from synthattn.cli import study as verb

    chosen = {"attention": attention, "abilities": abilities, "data": data, "probe": probe, "seeds": seeds}
    chosen["steps"] = steps
    raise typer.Exit(verb.run(name, chosen, output, work, jobs, resume, show, quiet))


@app.command()
@with_settings(["direction", "skip_bad"])
def data(
    source: Annotated[
        str, typer.Argument(help="A folder, a file, hub:NAME or builtin:NAME.", metavar="SOURCE", show_default=False)
    ],
    task: Annotated[str, typer.Option(help="The task, such as translation or language-modeling, or a suite.")],
    columns: Annotated[str, typer.Option(help="Columns for fields of the task, such as label=0,text=1+2.")] = "",
    tokenizer: Annotated[str, typer.Option(help="Kind of tokenizer: unigram, bytes or words.")] = "unigram",
    vocab_size: Annotated[int, typer.Option(help="Tokens in the vocabulary.")] = 8000,
    max_length: Annotated[int, typer.Option(help="Maximum tokens of a text.")] = 512,
    over_long: Annotated[str, typer.Option(help="Treatment of longer texts: truncate or drop.")] = "truncate",
    batch_tokens: Annotated[int, typer.Option(help="Maximum tokens in a batch, for the share of padding.")] = 4096,
    as_json: AsJson = False,
    **chosen: Any,
) -> None:
    """Show a source for a task: splits, lengths, examples as a model will read them, and problems."""
    from synthattn.cli import data as verb

    more: Any = {"tokenizer": tokenizer, "over_long": over_long, "skip_bad": bool(chosen["data__skip_bad"])}
    settings = verb.DataSettings(source, task, columns, vocab_size=vocab_size, **more)
    raise typer.Exit(verb.run(settings, chosen["data__direction"], max_length, batch_tokens, as_json))


def main() -> None:
    """Run the command; a user's mistake ends in one line, not in a traceback."""
    # Long busy-waiting makes threads many times slower when anything else runs on the machine.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    try:
        sys.exit(app(standalone_mode=False))
    except UsageError as error:
        if len(sys.argv) < 2:
            error.show()  # prints the help
            sys.exit(error.exit_code)
        _fail(
            f"{error.format_message().rstrip('.')}; see {error.ctx.command_path if error.ctx else 'synthattn'} --help"
        )
    except (ValueError, OSError) as error:
        if os.environ.get("SYNTHATTN_TRACEBACK"):
            raise
        _fail(_described(error))


HINTS = {errno.ENOENT: "; check the path", errno.EACCES: "; check its permissions", errno.ENOSPC: "; make room there"}


def _described(error: Exception) -> str:
    """Return the text of an error; one about a file begins with its name."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        hint = HINTS.get(error.errno or 0, "; choose another path")
        return f"{os.fsdecode(error.filename)}: {error.strerror}{hint}"
    return str(error) or type(error).__name__


def _fail(text: str) -> NoReturn:
    """Print an error as one line, whatever its text contains, and exit."""
    print(f"synthattn: {printable(text)}", file=sys.stderr)
    sys.exit(2)
