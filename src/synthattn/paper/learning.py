"""Whether differences between rows are still closing when training ends: short runs favour what learns fast."""

from synthattn.compare.results import Results as Part
from synthattn.render.charts import Key, Line, Lines
from synthattn.render.numbers import signed, whole

Curve = list[tuple[int, float]]
"""Steps, and what was found after each."""


def gaps(part: Part) -> dict[str, Curve]:
    """Return the validation loss of each row minus the baseline's, for the first seed and the steps that both have."""
    curves = {row.name: {int(step): loss for step, loss in row.validation_curve} for row in part.rows}
    base = curves.get(part.baseline, {})
    found = {
        name: [(step, loss - base[step]) for step, loss in curve.items() if step in base]
        for name, curve in curves.items()
        if name != part.baseline
    }
    return {name: curve for name, curve in found.items() if len(curve) > 1}


def about(part: Part) -> str:
    """The differences at half of training and at its end, in a sentence."""
    found = gaps(part)
    if not found:
        return ""
    last = max(step for curve in found.values() for step, _ in curve)
    texts = []
    for name, curve in found.items():
        half = min(curve, key=lambda point: abs(point[0] - last / 2))
        texts.append(f"{name} {signed(half[1], 3)}, then {signed(curve[-1][1], 3)}")
    return (
        f"Validation loss of the first seed, less that of {part.baseline}, halfway and at the end of {whole(last)} "
        f"steps (below zero is better): {'; '.join(texts)}. A difference that shrinks may be gone after longer "
        "training."
    )


def chart(part: Part) -> Lines | None:
    """Return a line for each row; the baseline is the one at zero."""
    found = gaps(part)
    if not found:
        return None
    lines, keys = [], []
    for place, (name, curve) in enumerate(found.items(), 1):
        tips = [f"{name}: {signed(gap, 3)} after {whole(step)} steps" for step, gap in curve]
        lines.append(Line(name, place, curve, tips, tips[-1]))
        keys.append(Key(place, name, signed(curve[-1][1], 3)))
    title = f"validation loss, difference from {part.baseline}"
    return Lines(title, "steps", "difference in validation loss", lines, rule=0.0, legend=keys)
