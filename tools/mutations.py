"""Put known mistakes into a copy of the package, one at a time, and show the test that catches each.

``python -m tools.mutations`` tries all of them; names choose some. A mistake that no test catches, and one whose place
in the source is gone, is an error. Takes some minutes.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Mutation(NamedTuple):
    """A mistake: what stands in a file in place of what, and the tests that are expected to fail."""

    name: str
    file: str
    right: str
    wrong: str
    tests: str


ENGINE = "src/synthattn/engine"
PATHS = "tests/engine/test_paths.py tests/layers/test_invariants.py"
MUTATIONS = [
    Mutation(
        "the scale of the dot product is left out",
        "src/synthattn/synthesizers/vanilla.py",
        "self.project_keys(memory), self.scale),",
        "self.project_keys(memory)),",
        "tests/layers/test_invariants.py tests/test_oracles.py",
    ),
    Mutation(
        "a causal mask shows the next token",
        "src/synthattn/masks.py",
        "device=device).tril()",
        "device=device).tril(1)",
        PATHS,
    ),
    Mutation(
        "the compiled kernel lets rows see one key too many",
        f"{ENGINE}/native/attention.c",
        "at->row + r + 1 - at->key",
        "at->row + r + 2 - at->key",
        "tests/engine/test_native.py",
    ),
    Mutation(
        "padding is ignored by the compiled kernel",
        f"{ENGINE}/compiled.py",
        "if mask.unpadded is not None and not mask.per_example:",
        "if False:",
        "tests/engine/test_native.py",
    ),
    Mutation(
        "padding is ignored by torch's fused kernel",
        f"{ENGINE}/sdpa.py",
        "None if causal else mask.full(",
        "None if causal else Mask(causal=mask.causal, allowed_pairs=mask.allowed_pairs).full(",
        PATHS,
    ),
    Mutation(
        "padding is ignored in windows",
        f"{ENGINE}/windowed.py",
        "if mask.unpadded is not None:",
        "if False:",
        PATHS,
    ),
    Mutation(
        "padding is ignored by input-independent attention",
        f"{ENGINE}/input_independent.py",
        "if mask.unpadded is not None:\n        return multiply(",
        "if False:\n        return multiply(",
        PATHS,
    ),
    Mutation(
        "padding is ignored by cached weights",
        f"{ENGINE}/cached_weights.py",
        "feature_major(), batch, call.mask,",
        "feature_major(), batch, Mask(causal=call.mask.causal),",
        "tests/engine/test_cached_weights.py tests/engine/test_paths.py tests/layers/test_invariants.py",
    ),
    Mutation(
        "padding is ignored by the plain backend",
        f"{ENGINE}/plain.py",
        "allowed = mask.full(q, k, total.device)",
        "allowed = Mask(causal=mask.causal, allowed_pairs=mask.allowed_pairs).full(q, k, total.device)",
        PATHS,
    ),
    Mutation(
        "the gradient of a bias is halved in the kernel",
        f"{ENGINE}/native/attention.c",
        "+ weight * slope",
        "+ 0.5f * weight * slope",
        "tests/engine/test_native.py",
    ),
    Mutation(
        "the weights of a mixture are transposed",
        "src/synthattn/synthesizers/mixture.py",
        "self.alpha.softmax(0)[:, :, None, None]",
        "self.alpha.softmax(0).flatten().view(self.alpha.shape[::-1]).mT[:, :, None, None]",
        "tests/layers/test_invariants.py tests/test_oracles.py",
    ),
    Mutation(
        "a cached token is one position off",
        "src/synthattn/layers/synthetic_attention.py",
        "start=layout.offset)",
        "start=max(0, layout.offset - 1))",
        "tests/layers/test_decoding.py",
    ),
    Mutation(
        "fixed_random is trained",
        "src/synthattn/synthesizers/fixed_random.py",
        'self.register_buffer("matrix", matrix)',
        "super().register_matrix(matrix)",
        "tests/layers/test_invariants.py tests/synthesizers/test_spec.py tests/models",
    ),
    Mutation(
        "cached weights outlive their parameters",
        f"{ENGINE}/cached_weights.py",
        "current = known is not None and known.is_current(sources)",
        "current = known is not None",
        "tests/engine/test_cached_weights.py",
    ),
    Mutation(
        "torch's fused kernel takes a sum of products",
        f"{ENGINE}/sdpa.py",
        "if len(products) != 1:",
        "if not products:",
        PATHS,
    ),
    Mutation(
        "the windowed backend takes positions that it does not know",
        f"{ENGINE}/windowed.py",
        " or term.distance is not None",
        "",
        PATHS,
    ),
    Mutation(
        "the bootstrap is not paired",
        "src/synthattn/metrics/base.py",
        "np.random.default_rng(0)",
        "np.random.default_rng()",
        "tests/compare/test_statistics.py",
    ),
    Mutation(
        "scores on other examples are compared",
        "src/synthattn/compare/collect.py",
        "data[0] == data[1] and splits[0]",
        "splits[0]",
        "tests/paper/test_evidence.py tests/compare/test_collect.py",
    ),
    Mutation(
        "the checksums of a seal are not compared",
        "src/synthattn/training/checkpoints.py",
        "file.stat().st_size != size or _checksum(file) != checksum",
        "file.stat().st_size != size",
        "tests/training/test_checkpoints.py",
    ),
    Mutation(
        "a high perplexity is good",
        "src/synthattn/metrics/perplexity.py",
        "higher_is_better = False",
        "higher_is_better = True",
        "tests/metrics/test_metrics.py",
    ),
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", help="parts of the names of mutations; all unless given")
    given = parser.parse_args()
    chosen = [m for m in MUTATIONS if not given.names or any(name in m.name for name in given.names)]
    caught = [report(mutation) for mutation in chosen]
    print(f"{sum(caught)} of {len(chosen)} mistakes are caught by a test")
    return 0 if all(caught) else 1


def report(mutation: Mutation) -> bool:
    """Try a mutation, print the test that catches it, and return True if there is one."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "tree"
        copy_tree(copy)
        file = copy / mutation.file
        text = file.read_text(encoding="utf-8")
        if text.count(mutation.right) != 1:
            print(f"GONE    {mutation.name}: {mutation.file} has {mutation.right!r} {text.count(mutation.right)} times")
            return False
        file.write_text(text.replace(mutation.right, mutation.wrong), encoding="utf-8")
        if file.suffix == ".c":
            build_kernels(copy)
        failed = first_failure(copy, mutation.tests)
    print(f"{'caught ' if failed else 'MISSED '} {mutation.name}: {failed or mutation.tests}", flush=True)
    return failed is not None


def copy_tree(target: Path) -> None:
    for part in ("src", "tests", "tools"):
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / part, target / part, ignore=ignored)
    for name in ("pyproject.toml", "hatch_build.py"):
        shutil.copy(ROOT / name, target / name)


def build_kernels(tree: Path) -> None:
    code = (
        "import platform; import hatch_build as h\n"
        "for name, options in h.LEVELS[platform.machine()].items():\n"
        "    h.compile_kernels(h.find_compiler(), h.FOLDER, h.FOLDER / f'kernels.{name}.so', options)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tree, check=True)


def first_failure(tree: Path, tests: str) -> str | None:
    """Return the name of the first test that fails, None if all pass."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "2", "--tb=no", *tests.split()]
    environment = os.environ | {"PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    if done.returncode == 0:
        return None
    found = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", done.stdout, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"no test ran: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return found[1]


if __name__ == "__main__":
    sys.exit(main())
