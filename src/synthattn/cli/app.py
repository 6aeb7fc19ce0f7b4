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
        str | None, typer.Option(help="seq2seq, causal-lm, masked-lm or classifier; by default what it is made for.")
    ] = None,
    length: Annotated[int | None, typer.Option(help="Tokens to count operations for; by default the longest.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Count a model's parameters by part, its operations, and the memory that decoding needs, without making it."""
    from synthattn.cli import describe as verb

    verb.run(model, attention, kind, length, as_json)


def main() -> None:
    """Run the command; a user's mistake ends in one line, not in a traceback."""
    try:
        app()
    except (ValueError, OSError) as error:
        if os.environ.get("SYNTHATTN_TRACEBACK"):
            raise
        print(f"synthattn: {error}", file=sys.stderr)
        sys.exit(2)
