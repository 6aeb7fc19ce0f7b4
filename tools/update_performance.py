"""Write the findings of ``synthattn bench`` into docs/performance.md, and the tables and pages of each machine.

    python tools/update_performance.py [RECORD.json ...]

Records are kept in ``docs/performance``, in one folder per machine; records given on the command line are copied there
first. From them this script writes, and a test writes again and compares:

- the figures in ``docs/performance.md`` and one line of the README, between markers;
- ``docs/performance/picture.svg``;
- ``README.md`` (all tables) and ``report.html`` (tables and plots) in the folder of each machine.
"""

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from synthattn.bench.page import markdown, page
from synthattn.bench.record import BenchRecord, Measurement, load, merged
from synthattn.render.charts import ForestPlot, Point

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "docs" / "performance"
BEGIN, END = "<!-- made by tools/update_performance.py -->", "<!-- end of what was made -->"

Records = dict[Path, BenchRecord]
"""The record of each machine, by its folder."""
INPUT_INDEPENDENT = ("random", "fixed_random", "factorized_random")
LINEAR = ("dense(window=15)", "lightconv", "dynamicconv", "linformer")
DRAWN = (*INPUT_INDEPENDENT, "dense", "random+vanilla", "factorized_random+vanilla", "dense+vanilla")
LISTED = ", ".join(f"`{name}`" for name in INPUT_INDEPENDENT)
WRITTEN_LINEAR = ", ".join(f"`{name}`" for name in LINEAR)
SHAPES = ((16, 512), (4, 2048))
T5 = "Hugging Face T5"


def folder_of(record: BenchRecord) -> Path:
    """Return ``docs/performance/amd-epyc-avx2``, for example."""
    return KEPT / "-".join(re.findall(r"[a-z0-9]+", machine(record).lower()))


def machine(record: BenchRecord) -> str:
    """Name of the processor without trade marks, and its vectors: processors of one name differ in these."""
    vectors = {"avx2": "AVX2", "avx512": "AVX-512", "neon": "NEON"}.get(record.versions.get("compiled kernel", ""))
    return record.machine.replace("(R)", "") + (f", {vectors}" if vectors else "")


def records() -> Records:
    """Read and merge the records that are kept of each machine."""
    folders = sorted({path.parent for path in KEPT.glob("*/*.json")})
    return {folder: merged(load(path) for path in sorted(folder.glob("*.json"))) for folder in folders}


def measured(record: BenchRecord, kind: str, names: tuple[str, ...], **case: object) -> Iterator[Measurement]:
    """Measurements of these contenders in all cases with these attributes."""
    for one in record.of(kind):
        if one.contender in names and all(getattr(one.case, name) == value for name, value in case.items()):
            yield one


def ratios(record: BenchRecord, rival: str, kind: str, names: tuple[str, ...], **case: object) -> list[float]:
    """Ratios to a rival; those of a layer are from the two shapes with several examples, unless a length is given."""
    found = measured(record, kind, names, **case)
    if kind == "layer" and "length" not in case:
        found = (one for one in found if (one.case.batch, one.case.length) in SHAPES)
    return [one.ratios[rival] for one in found if rival in one.ratios]


def span(values: list[float]) -> str:
    """Smallest and largest value, with two decimals where they are small."""
    low, high = (f"{value:.2f}" if value < 20 else f"{value:,.0f}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


@dataclass(frozen=True)
class Figure:
    """One row of the table of figures: a number that the record of a machine may hold."""

    finding: int
    """The finding on the page that it belongs to."""
    words: str
    values: Callable[[BenchRecord], list[float]]


def times(
    finding: int, words: str, kind: str, names: tuple[str, ...], rival: str = "vanilla", **case: object
) -> Figure:
    """Row with ratios to a rival."""
    return Figure(finding, words, lambda record: ratios(record, rival, kind, names, **case))


def megabytes(record: BenchRecord, names: tuple[str, ...]) -> list[float]:
    """Peak memory of a layer in inference at length 8192."""
    found = measured(record, "layer", names, length=8192, mode="eval")
    return [one.megabytes for one in found if one.megabytes is not None]


def cache(record: BenchRecord, name: str) -> list[float]:
    """Bytes of the cache of self-attention per token."""
    return [one.cache_bytes for one in measured(record, "decode", (name,)) if one.cache_bytes is not None]


def of_torch(record: BenchRecord, mode: str) -> list[float]:
    """Return the speed of our vanilla layer as times that of the same layer on torch's fused kernel."""
    return [1 / ratio for ratio in ratios(record, "vanilla", "layer", ("vanilla by torch",), mode=mode)]


DISTANCE = ("relative+vanilla", "toeplitz+vanilla")
WRITTEN_DISTANCE = ", ".join(f"`{name}`" for name in DISTANCE)
FIGURES = [
    times(1, f"layer, inference: {LISTED}", "layer", INPUT_INDEPENDENT, mode="eval"),
    times(1, f"layer, training: {LISTED}", "layer", INPUT_INDEPENDENT, mode="train"),
    Figure(2, "layer, inference: `vanilla`, times the same on torch's kernel", lambda record: of_torch(record, "eval")),
    Figure(2, "layer, training: `vanilla`, times the same on torch's kernel", lambda record: of_torch(record, "train")),
    times(2, "layer, training: `random+vanilla`", "layer", ("random+vanilla",), mode="train"),
    times(2, f"layer, training: {WRITTEN_DISTANCE}", "layer", DISTANCE, mode="train"),
    times(2, "layer, training: `dense+vanilla`", "layer", ("dense+vanilla",), mode="train"),
    times(3, "layer, inference: `dense`", "layer", ("dense",), mode="eval"),
    times(3, "layer, training: `dense`", "layer", ("dense",), mode="train"),
    times(4, "encoder, training step: `random`", "train", ("random",)),
    times(4, "encoder, training step: `random`, times T5 of transformers", "train", ("random",), T5),
    times(4, "encoder, training step: `vanilla`, times T5 of transformers", "train", ("vanilla",), T5),
    times(4, "generation: `random`", "decode", ("random",)),
    times(4, "generation: `random`, times T5 of transformers", "decode", ("random",), T5),
    times(4, "generation: `vanilla`, times T5 of transformers", "decode", ("vanilla",), T5),
    Figure(4, "generation: bytes of cache per token, `random`", lambda record: cache(record, "random")),
    Figure(4, "generation: bytes of cache per token, `vanilla`", lambda record: cache(record, "vanilla")),
    times(5, f"layer at length 8192, inference: {LISTED}", "layer", INPUT_INDEPENDENT, mode="eval", length=8192),
    times(5, f"layer at length 8192, inference: {WRITTEN_LINEAR}", "layer", LINEAR, mode="eval", length=8192),
    Figure(5, f"layer at length 8192, inference: MB, {LISTED}", lambda record: megabytes(record, INPUT_INDEPENDENT)),
    Figure(5, f"layer at length 8192, inference: MB, {WRITTEN_LINEAR}", lambda record: megabytes(record, LINEAR)),
    times(5, "layer at length 8192, inference: `toeplitz`", "layer", ("toeplitz",), mode="eval", length=8192),
    times(5, "layer at length 8192, training: `toeplitz`", "layer", ("toeplitz",), mode="train", length=8192),
    Figure(5, "layer at length 8192, inference: MB, `toeplitz`", lambda record: megabytes(record, ("toeplitz",))),
    Figure(5, "layer at length 8192, inference: MB, `vanilla`", lambda record: megabytes(record, ("vanilla",))),
]


def figures(found: Records) -> str:
    """Table of the figures behind the findings, with a column for each machine."""
    lines = [
        f"| finding | figure | {' | '.join(map(machine, found.values()))} |",
        "|---:|---" + "|---:" * len(found) + "|",
    ]
    for figure in FIGURES:
        cells = [span(values) if (values := figure.values(record)) else "not measured" for record in found.values()]
        lines.append(f"| {figure.finding} | {figure.words} | {' | '.join(cells)} |")
    return "\n".join(lines)


def headline(found: Records) -> str:
    """Line of the README on speed, over all machines."""
    layer, mixture = (
        span([ratio for record in found.values() for ratio in ratios(record, "vanilla", "layer", names, mode="train")])
        for names in (INPUT_INDEPENDENT, ("random+vanilla",))
    )
    machines = {1: "one machine", 2: "two machines", 3: "three machines"}.get(len(found), f"{len(found)} machines")
    return (
        f"- **Speed.** Training a layer with {LISTED} is {layer} times as fast as with the dot product; "
        f"`random+vanilla` is {mixture} times as fast ([performance](docs/performance.md), {machines})."
    )


def picture(found: Records) -> str:
    """Draw training and inference of a layer at 16x512 on every machine."""
    points, kinds = [], []
    for record in found.values():
        for mode, word in (("eval", "inference"), ("train", "training")):
            kinds.append(f"{machine(record)}, {word}")
            for name in DRAWN:
                for value in ratios(record, "vanilla", "layer", (name,), mode=mode, mask="full", length=512, batch=16):
                    tip = f"{name}, {kinds[-1]}: {value:.2f} times vanilla"
                    points.append(Point(kinds[-1], len(kinds), value, name, tip))
    title = "Speed of a layer at 16x512, times vanilla (right is faster)"
    return ForestPlot(title, "times vanilla (right is faster)", points, 1.0, log=True, width=560, keyed=True).svg()


def tables(folder: Path, record: BenchRecord) -> str:
    """All tables of one machine, as Markdown."""
    title, rest = markdown(record, f"Speed and memory on {machine(record)}").split("\n", 1)
    return f"{title}\n\n[The same tables with plots](report.html).\n{rest}"


def documents(found: Records) -> dict[Path, str]:
    """Every file that is written, with its text."""
    written = {
        KEPT / "picture.svg": picture(found),
        ROOT / "docs" / "performance.md": replaced(ROOT / "docs" / "performance.md", figures(found)),
        ROOT / "README.md": replaced(ROOT / "README.md", headline(found)),
    }
    for folder, record in found.items():
        written |= {folder / "README.md": tables(folder, record), folder / "report.html": page(record)}
    return written


def replaced(document: Path, text: str) -> str:
    """Text of a document with a new part between the markers."""
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    return pattern.sub(lambda match: f"{BEGIN}\n\n{text}\n\n{END}", document.read_text(encoding="utf-8"))


def keep(path: Path) -> None:
    """Copy a record into the folder of its machine, without paths of that machine."""
    record = load(path)
    record.command = re.sub(r"(?<=\s)/\S*/", "", record.command)
    folder_of(record).mkdir(parents=True, exist_ok=True)
    record.save(folder_of(record) / path.name)


def main() -> None:
    for path in map(Path, sys.argv[1:]):
        keep(path)
    for path, text in documents(records()).items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
