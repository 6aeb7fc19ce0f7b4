"""Print how many lines a newcomer has to read, and how many each part of the package has.

    python tools/count_lines.py

The starter files are the first that the README names. What they import is followed through the package, without the
engine. The ``__init__`` of a package counts where names are imported from it. Imports for type checkers do not count.
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
    """Return the files of the package that a file names in its imports."""
    found = set[Path | None]()
    for node in _runtime_nodes(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            found.update(_file(f"{node.module}.{alias.name}") or _file(node.module) for alias in node.names)
        elif isinstance(node, ast.Import):
            found.update(_file(alias.name) for alias in node.names)
    return {file for file in found if file is not None}


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


def _file(module: str) -> Path | None:
    """Return the file of a module of the package; None for other modules and for names inside of a module."""
    root, *steps = module.split(".")
    path = PACKAGE.joinpath(*steps)
    files = [path.with_suffix(".py"), path / "__init__.py"] if root == PACKAGE.name else []
    return next((file for file in files if file.is_file()), None)


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
