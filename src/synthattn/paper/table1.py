"""Table 1: what each synthesizing function looks at and what it costs, found out by trying.

A layer reads texts that differ in one token; the logits that change show what they depend on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from synthattn.layers import SyntheticAttention
from synthattn.render import markdown as md
from synthattn.render.document import Document, MarkdownOnly, PageOnly, Paragraph, Section
from synthattn.render.html import page as html
from synthattn.render.numbers import NOTHING, whole
from synthattn.render.table import Cell, Column, Row, Span, Table

PRINTED: dict[str, tuple[str, Callable[[int, int, int], int]]] = {
    "vanilla": ("2 d²", lambda d, n, heads: 2 * d * d),
    "dense": ("d² + d N", lambda d, n, heads: d * d + d * n),
    "random": ("N²", lambda d, n, heads: n * n),
    "fixed_random": ("0", lambda d, n, heads: 0),
    "factorized_random": ("2 N k, k = 8", lambda d, n, heads: 2 * n * 8),
    "factorized_dense": ("d² + d (a + b), a b = N", lambda d, n, heads: d * d + d * 2 * round(n**0.5)),
}
"""The paper's formulas, as printed, and their values. Those with N alone are for one head."""

NAMES = {
    "vanilla": "Dot product",
    "dense": "Dense",
    "random": "Random",
    "fixed_random": "Fixed Random",
    "factorized_random": "Factorized Random",
    "factorized_dense": "Factorized Dense",
    "random+vanilla": "Random + Dot product",
    "random+dense": "Random + Dense",
    "dense+vanilla": "Dense + Dot product",
}


@dataclass(frozen=True)
class SynthesizedRow:
    """One synthesizing function, and what was found out about it."""

    name: str
    attention: str
    conditions_on: str
    """Tokens that the logits of a token depend on: ``nothing``, ``the token itself`` or ``all tokens``."""
    scope: str
    """Either ``global``, if every text has the same logits, or ``local``."""
    interaction: bool
    """Whether the logit of two tokens depends on both."""
    parameters: int
    """Trained parameters of all heads, without the projections of values and output."""
    printed: str
    """Formula of the paper; empty for mixtures, which it does not list."""
    printed_value: int | None


def probe(attention: str, d_model: int = 16, num_heads: int = 2, length: int = 9) -> tuple[str, str, bool]:
    """Find out what the logits of a layer depend on, whether they differ between texts, and whether tokens interact."""
    layer = SyntheticAttention(d_model, num_heads, attention=attention, max_length=length).double().eval()
    generator = torch.Generator().manual_seed(0)
    text = torch.randn(1, length, d_model, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        for parameter in layer.parameters():  # some start at zero, which would hide what they are for
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        before = layer.logits(text).expand(1, num_heads, length, length)
        changed = torch.zeros(length, length, length, dtype=torch.bool)  # by a token: the logits from each to each
        for token in range(length):
            other = text.clone()
            other[0, token] += torch.randn(d_model, generator=generator, dtype=torch.float64)
            after = layer.logits(other).expand(1, num_heads, length, length)
            changed[token] = (after != before).any(1)[0]
    rows = changed.any(-1)
    own = bool(rows.diagonal().any())
    others = bool((rows & ~torch.eye(length, dtype=torch.bool)).any())
    conditions = "all tokens" if others else "the token itself" if own else "nothing"
    pairs = ((i, j) for i in range(length) for j in range(length) if i != j)
    # The logit from one token to another depends on both.
    interaction = any(bool(changed[i, i, j] and changed[j, i, j]) for i, j in pairs)
    return conditions, "local" if own or others else "global", interaction


def parameters(attention: str, d_model: int, num_heads: int, length: int) -> int:
    """Count trained parameters of the synthesizing function alone."""
    with torch.device("meta"):
        layer = SyntheticAttention(d_model, num_heads, attention=attention, max_length=length, bias=False)
    everything = sum(parameter.numel() for parameter in layer.parameters() if parameter.requires_grad)
    return everything - layer.value.weight.numel() - layer.output.weight.numel()


def synthesized(d_model: int = 512, num_heads: int = 8, length: int = 256) -> list[SynthesizedRow]:
    """Return all rows, at the sizes of the paper's translation models unless given."""
    rows = []
    for attention, name in NAMES.items():
        conditions, scope, interaction = probe(attention)
        formula, value = PRINTED.get(attention, ("", None))
        rows.append(
            SynthesizedRow(
                name,
                attention,
                conditions,
                scope,
                interaction,
                parameters(attention, d_model, num_heads, length),
                formula,
                None if value is None else value(d_model, length, num_heads),
            )
        )
    return rows


TITLE = "Table 1: what attention is computed from, and what that costs"
NOTES = [
    "Found out by trying: layers are given texts that differ in one token, and the logits that change tell what they "
    "depend on. Tokens interact if the logit of two tokens depends on both.",
    "Parameters are those that are trained to synthesize logits, of all heads of a layer, at the sizes of the paper's "
    "translation models. The paper's formulas with N alone are for one head.",
]


def table_of(rows: Sequence[SynthesizedRow]) -> Table:
    """Return the table of all functions."""
    texts = {
        "Depends on": [row.conditions_on for row in rows],
        "Same for all texts": ["yes" if row.scope == "global" else "no" for row in rows],
        "Tokens interact": ["yes" if row.interaction else "no" for row in rows],
        "Parameters": [whole(row.parameters) for row in rows],
        "The paper's formula": [row.printed or NOTHING for row in rows],
        "The paper's value": [NOTHING if row.printed_value is None else whole(row.printed_value) for row in rows],
    }
    columns = [Column(head, [Cell(t) for t in each], short=head.replace(" ", "\n", 1)) for head, each in texts.items()]
    return Table(TITLE, "Attention", [Row(row.name, row.attention) for row in rows], columns)


def page(rows: Sequence[SynthesizedRow]) -> str:
    """Return the page as one HTML file."""
    return html(_document(rows))


def markdown(rows: Sequence[SynthesizedRow]) -> str:
    """Return the document as Markdown."""
    return md.markdown(_document(rows))


def _document(rows: Sequence[SynthesizedRow]) -> Document:
    command = "synthattn reproduce table1"
    blocks = [table_of(rows), *(Paragraph(note, "note") for note in NOTES)]
    said = ("Written by ", Span(command, "code"), ", not by hand; the same ", Span("as a page", link="page.html"), ".")
    lead = [PageOnly([Paragraph(command, "soft")]), MarkdownOnly([Paragraph(said)])]
    return Document(TITLE, command, lead, [Section("table", "What was found", blocks)])
