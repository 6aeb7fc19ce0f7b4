"""Promises about what is imported: by the package as a whole, and by its parts of each other."""

import ast
import functools
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tools.faults.processes import FORKS

import synthattn

pytestmark = pytest.mark.unchecked

PACKAGE = Path(synthattn.__file__).parent

# A module may import from its own layer and from those before it.
LAYERS = [
    ["shapes", "tracing", "messages", "regular_file", "saved_file", "auto_classes"],
    ["terminal"],
    ["structured_biases"],
    ["logits", "masks"],
    ["engine", "reference"],
    ["attend"],
    ["synthesizers"],
    ["layers"],
    ["__init__"],
    ["metrics"],
    ["data"],
    ["tasks"],
    ["models", "convert"],
    ["training"],
    ["render"],
    ["bench"],
    ["compare"],
    ["paper"],
    ["api"],
    ["cli"],
    ["__main__"],
]


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_import_loads_torch_and_nothing_else_heavy():
    """Nor does replacing attention, of models that are not of transformers."""
    heavy = [
        "transformers",
        "sacrebleu",
        "yaml",
        "numpy.testing",
        "scipy",
        "datasets",
        "typer",
        "rich",
        "matplotlib",
        "altair",
        "vl_convert",
    ]
    show = f"print([m for m in {heavy} if m in sys.modules])"
    code = (
        f"import torch, sys; {show}; import synthattn; synthattn.SyntheticAttention; {show};"
        "synthattn.restore; synthattn.from_pretrained;"
        "layer = torch.nn.TransformerEncoderLayer(8, 2); synthattn.replace_attention(layer, 'random', 4);"
        "print('transformers' in sys.modules)"
    )
    before, after, replacing = run(code).splitlines()
    assert before == after
    assert replacing == "False"


def import_verbs() -> None:
    for verb in ("app", "compare", "bench", "reproduce"):
        importlib.import_module(f"synthattn.cli.{verb}")
    sys.exit(len({"altair", "vl_convert"} & sys.modules.keys()))


def test_help_and_building_blocks_load_no_library_of_charts():
    """Only a page that is drawn does."""
    process = FORKS.Process(target=import_verbs)
    process.start()
    process.join()
    assert process.exitcode == 0


def test_only_render_writes_markup():
    """Other packages say what to show; tags, styles and drawings are made in one place."""
    tag = re.compile(
        r"</?(?:a|b|br|details|div|dl|figure|g|h[1-6]|li|ol|p|path|section|span|style|sup|svg|table|t[dhr]|ul)[ />]"
    )
    for package in ("compare", "bench", "paper", "cli"):
        for path in sorted((PACKAGE / package).rglob("*")):
            assert path.suffix not in (".css", ".html", ".js", ".svg"), path
            texts = (
                node.value
                for node in (ast.walk(ast.parse(path.read_text())) if path.suffix == ".py" else ())
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
            )
            for text in texts:
                assert not tag.search(text), f"{path.relative_to(PACKAGE)} has mark-up of its own: {text!r}"


def test_works_without_jaxtyping():
    code = (
        "import sys; sys.modules['jaxtyping'] = None; import torch, synthattn;"
        "print(synthattn.SyntheticAttention(8, 2, 'random+vanilla', 4)(torch.zeros(1, 3, 8)).shape)"
    )
    assert run(code).strip() == "torch.Size([1, 3, 8])"


@functools.cache
def imported_parts(path: Path) -> set[str]:
    """The parts of the package that a file imports: the first name after ``synthattn``."""
    parts = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "synthattn":
            names = node.module.split(".")[1:2]
            # What the package itself offers is in its __init__; all else after "from synthattn import" is a module.
            offered = ["__init__" if a.name in synthattn.__all__ else a.name for a in node.names]
            parts.update(names or offered)
        elif isinstance(node, ast.Import):
            parts.update(a.name.split(".")[1] for a in node.names if a.name.startswith("synthattn."))
    return parts


def test_dependencies_point_one_way():
    rank = {name: n for n, names in enumerate(LAYERS) for name in names}
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > 15
    for path in files:
        own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        assert own in rank, f"{own} has no place in the layers"
        unknown = imported_parts(path) - set(rank)
        assert not unknown, f"{path.relative_to(PACKAGE)} imports {unknown}, which is not a module"
        if own == "__init__":  # it names what the package offers, and imports it on first use
            continue
        upward = {part for part in imported_parts(path) if rank[part] > rank[own]}
        assert not upward, f"{path.relative_to(PACKAGE)} imports {upward} from above"
        assert not any(rank[part] == rank[own] and part != own for part in imported_parts(path)), (
            f"{path.relative_to(PACKAGE)} imports a sibling"
        )


def test_the_reference_shares_nothing_with_what_it_checks():
    assert imported_parts(PACKAGE / "reference.py") == {"shapes"}
