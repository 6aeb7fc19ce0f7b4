"""The verb ``synthattn describe``."""

from typing import Any

from rich.table import Table

from synthattn.messages import printable, printable_json
from synthattn.models.describe import describe, find_model
from synthattn.terminal import SafeConsole


def run(name: str, attention: str | None, kind: str | None, length: int | None, as_json: bool) -> None:
    if length is not None and length < 1:
        raise ValueError(f"--length must be at least 1, got {length}")
    config, made_for = find_model(name, attention)
    figures = describe(config, kind or made_for, length)
    if as_json:
        print(printable_json(figures, 2))
    else:
        show(name, figures)


def show(name: str, figures: dict[str, Any]) -> None:
    table = Table(title=printable(f"{name}: {figures['model']}"), title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    for stack, spec in figures["attention"].items():
        table.add_row(f"{stack} attention", spec if isinstance(spec, str) else ", ".join(spec))
    table.add_row("longest input", f"{figures['max_length']:,}")
    table.add_section()
    parameters = dict(figures["parameters"])
    table.add_row("parameters", millions(parameters.pop("total")))
    for part, count in parameters.items():
        table.add_row(f"  {part.replace('_', ' ')}", millions(count))
    if figures["fixed"]:
        table.add_row("fixed numbers, not trained", millions(figures["fixed"]))
    if figures["length_squared"]:
        table.add_row("in tables of length x length", millions(figures["length_squared"]))
    table.add_section()
    flops = figures["flops"]
    table.add_row(f"operations, forward, length {flops['length']}", f"{flops['forward'] / 1e9:,.2f} G")
    table.add_row("  per token", f"{flops['per_token'] / 1e6:,.2f} M")
    if figures["cache"] is not None:
        cache = figures["cache"]
        table.add_section()
        table.add_row(f"decoding cache per token, {cache['dtype']}", f"{cache['bytes_per_token']:,} B")
        if cache["bytes_per_encoder_token"]:
            table.add_row("  per token of the encoder", f"{cache['bytes_per_encoder_token']:,} B")
    console = SafeConsole()
    console.print(table)
    if figures["length_squared"]:
        console.print(
            "random and fixed_random hold length x length numbers for each head and layer: twice the length takes four "
            "times as many. For long inputs take toeplitz or factorized_random."
        )


def millions(count: int) -> str:
    return f"{count / 1e6:,.2f} M" if count >= 1e5 else f"{count:,}"
