"""Print how many lines a newcomer has to read, and how many each part of the package has.

    python tools/count_lines.py

The starter files are those that the README names first. What they import is followed through the package, without the
engine; imports for the type checker alone do not count.
"""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "synthattn"
STARTERS = ("logits.py", "synthesizers/random.py", "attend.py", "layers/synthetic_attention.py")


def lines(files: Iterable[Path]) -> int:
    """Count the lines of some files."""
    return sum(len(file.read_text().splitlines()) for file in files)


def imported(file: Path) -> set[Path]:
    """Return the files of the package that a file imports directly, with the packages that they are in."""
    found = set[Path]()
    for node in _runtime_nodes(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        else:
            continue
        for module in modules:
            found.update(_files(module))
    return found


def reached(starters: Iterable[Path]) -> set[Path]:
    """Return some files and all that they import, directly or through others, without the engine."""
    found = set[Path]()
    waiting = list(starters)
    while waiting:
        file = waiting.pop()
        if file not in found and PACKAGE / "engine" not in file.parents:
            found.add(file)
            waiting.extend(imported(file))
    return found


def _runtime_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for other in node.orelse:
                yield from (other, *_runtime_nodes(other))
        else:
            yield node
            yield from _runtime_nodes(node)


def _files(module: str) -> Iterator[Path]:
    root, *steps = module.split(".")
    if root != PACKAGE.name:
        return
    folder = PACKAGE
    yield folder / "__init__.py"
    for step in steps:
        if (folder / f"{step}.py").is_file():
            yield folder / f"{step}.py"
            return
        folder = folder / step
        if not folder.is_dir():
            return
        yield folder / "__init__.py"


def main() -> None:
    starters = [PACKAGE / name for name in STARTERS]
    all_reached = reached(starters)
    rows = [(name, lines([PACKAGE / name])) for name in STARTERS]
    rows += [
        ("the starter files together", lines(starters)),
        (f"with what they import ({len(all_reached)} files), engine left out", lines(all_reached)),
        ("engine, Python", lines(PACKAGE.glob("engine/**/*.py"))),
        ("engine, C", lines([*PACKAGE.glob("engine/**/*.c"), *PACKAGE.glob("engine/**/*.h")])),
        ("modules outside of packages", lines(PACKAGE.glob("*.py"))),
    ]
    for folder in sorted(folder for folder in PACKAGE.iterdir() if (folder / "__init__.py").is_file()):
        rows.append((f"{folder.name}/", lines(folder.glob("**/*.py"))))
    rows.append(("the whole package, Python", lines(PACKAGE.glob("**/*.py"))))
    for name, count in rows:
        print(f"{count:6,}  {name}")


if __name__ == "__main__":
    main()
