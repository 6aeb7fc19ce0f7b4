"""Whether differences between rows are still closing when training ends: short runs favour what learns fast."""

from itertools import pairwise

from synthattn.bench.plots import shortened
from synthattn.compare.results import Results as Part
from synthattn.render.document import escape
from synthattn.render.picture import COLOURS, LETTER, Axis, svg_frame, svg_line, svg_text
from synthattn.render.tables import signed, whole

Curve = list[tuple[int, float]]
"""Steps, and what was found after each."""
WIDTH, LEFT, TOP, BOTTOM = 620.0, 50.0, 8.0, 262.0
APART = 15.0
"""Of two lines of text."""


def gaps(part: Part) -> dict[str, Curve]:
    """By row, its validation loss less that of the baseline, of the first seed; where both were looked at."""
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


def plot(part: Part) -> str:
    """A line for each row; the baseline is the one at zero."""
    found = gaps(part)
    if not found:
        return ""
    right = WIDTH - 20 - LETTER * max(len(shortened(name)) for name in found)
    points = [point for curve in found.values() for point in curve]
    across = Axis([0.0, *(float(step) for step, _ in points)], LEFT, right, 5)
    up = Axis([0.0, *(gap for _, gap in points)], BOTTOM, TOP, 6)
    parts = []
    for tick in up.ticks:
        parts.append(svg_line(LEFT, up(tick), right, up(tick), "grid", ' stroke-opacity="0.25"'))
        parts.append(svg_text(LEFT - 6, up(tick) + 4, signed(tick, up.places), "end"))
    for tick in across.ticks:
        parts.append(svg_text(across(tick), BOTTOM + 17, whole(round(tick)), "middle"))
    parts.append(svg_line(LEFT, up(0), right, up(0), "base"))
    labels = _spread({name: up(curve[-1][1]) for name, curve in found.items()})
    for n, (name, curve) in enumerate(found.items(), 1):
        place = n % len(COLOURS)
        drawn = "L".join(f"{across(step):.1f},{up(gap):.1f}" for step, gap in curve)
        y = labels[name]
        leader = f"M{across(curve[-1][0]):.1f},{up(curve[-1][1]):.1f}L{right + 8:.1f},{y:.1f}"
        tip = f"{name}: {signed(curve[-1][1], 3)} after {whole(curve[-1][0])} steps"
        parts.append(
            f'<g class="v{place}" stroke="{COLOURS[place]}" fill="{COLOURS[place]}">'
            f'<path style="fill:none" stroke-width="1.8" d="M{drawn}"><title>{escape(tip)}</title></path>'
            f'<path style="fill:none" stroke-opacity="0.5" d="{leader}"/>'
            f'<text stroke="none" x="{right + 11:.1f}" y="{y + 4:.1f}">{escape(shortened(name))}</text></g>'
        )
    parts.append(svg_text((LEFT + right) / 2, BOTTOM + 36, "steps", "middle"))
    return svg_frame(WIDTH, BOTTOM + 44, f"validation loss, difference from {part.baseline}", parts)


def _spread(heights: dict[str, float]) -> dict[str, float]:
    """Where labels go that would hide each other: as near to their lines as there is room."""
    names = sorted(heights, key=lambda name: heights[name])
    places = [heights[name] for name in names]
    for _ in range(200):
        for n, (one, other) in enumerate(pairwise(list(places))):
            lack = APART - (other - one)
            if lack > 0.01:
                places[n], places[n + 1] = places[n] - lack / 2, places[n + 1] + lack / 2
    shift = max(0.0, TOP + 4 - places[0]) - max(0.0, places[-1] - BOTTOM)
    return {name: place + shift for name, place in zip(names, places, strict=True)}
