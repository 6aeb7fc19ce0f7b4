"""What the command can do. Nothing heavy is imported before a verb runs: ``--help`` must answer at once."""

import os
import sys
from typing import Annotated

import typer

from synthattn import __version__

app = typer.Typer(
    name="synthattn",
    help="Does your Transformer need dot-product attention? Synthesizer models (Tay et al. 2021).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"synthattn {__version__}")
        raise typer.Exit


@app.callback()
def _command(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def describe(
    model: Annotated[str, typer.Argument(help="A preset (such as transformer_base), or the folder of a saved model.")],
    attention: Annotated[str | None, typer.Option(help="Attention of both stacks, such as 'random+vanilla'.")] = None,
    kind: Annotated[
        str | None,
        typer.Option(help="seq2seq, causal-lm, masked-lm, classifier or bare; by default what it is made for."),
    ] = None,
    length: Annotated[int | None, typer.Option(help="Tokens to count operations for; by default the longest.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Count a model's parameters by part, its operations, and the memory that decoding needs, without making it."""
    from synthattn.cli import describe as verb

    verb.run(model, attention, kind, length, as_json)


@app.command()
def data(
    source: Annotated[
        str, typer.Argument(help="A folder, a file, hub:NAME or builtin:NAME.", metavar="SOURCE", show_default=False)
    ],
    task: Annotated[str, typer.Option(help="What the data is for, such as translation or language-modeling.")],
    columns: Annotated[
        str | None, typer.Option(help="Columns of the source for fields of the task, such as label=0,text=1+2.")
    ] = None,
    tokenizer: Annotated[str, typer.Option(help="unigram, bytes or words.")] = "unigram",
    vocab_size: Annotated[int, typer.Option(help="Tokens in the vocabulary.")] = 8000,
    max_length: Annotated[int, typer.Option(help="Texts may have that many tokens.")] = 512,
    over_long: Annotated[str, typer.Option(help="What is done with longer ones: truncate or drop.")] = "truncate",
    batch_tokens: Annotated[int, typer.Option(help="Tokens in a batch, for the share of padding.")] = 4096,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what a source holds for a task: splits, lengths, examples as a model will see them, and what is wrong."""
    from synthattn.cli import data as verb

    verb.run(source, task, columns, tokenizer, vocab_size, max_length, over_long, batch_tokens, as_json)


def main() -> None:
    """Run the command; a user's mistake ends in one line, not in a traceback."""
    try:
        app()
    except (ValueError, OSError) as error:
        if os.environ.get("SYNTHATTN_TRACEBACK"):
            raise
        print(f"synthattn: {error}", file=sys.stderr)
        sys.exit(2)
