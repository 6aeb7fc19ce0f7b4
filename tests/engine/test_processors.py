"""The kernels on processors that can do less than this one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import IS_ARM, needs_kernels

CODE = """
import test_dropout as dropped
import test_gemm as large
import test_native as wide
import test_thin as few
from synthattn.engine.native.library import load

wide.thresholds.COMPILED_LOGITS = few.thin.LEAST_SIZE = 0
print("there" if load() is not None else "not there")
for spec in wide.SPECS:
    for kind in ("full", "causal left"):
        wide.assert_exact(*wide.layer_and_exact(spec, max_length=73), wide.tokens(71), **wide.ends(71, kind))
wide.assert_exact(*wide.layer_and_exact("random+vanilla", max_length=600), wide.tokens(599))
if load() is not None:
    dropped.check_against_the_equation(0.3, "causal left", 300, wide=True)
    for sizes in ((1, 1, 1), (97, 517, 31), (521, 129, 600)):
        large.test_equals_float64(*sizes, "rows", "columns")
        large.test_equals_float64(*sizes, "columns", "rows")
    for triangle in large.TRIANGLES:
        large.test_triangles(triangle, 300, 211, 253)
for sizes in ((1, 1, 1), (8, 211, 517), (31, 64, 129)):
    few.check_product(*sizes, True)
few.check_norm(5, 517, 1e-6, True)
"""


@needs_kernels
@pytest.mark.parametrize("level", ["avx2", "default"])
def test_every_processor_computes_the_same(level):
    """In a fresh process, whose torch is told that the processor can do less."""
    environment = os.environ | {
        "ATEN_CPU_CAPABILITY": level,
        "PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parents[1])]),
    }
    run = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == ("there" if level == "avx2" or IS_ARM else "not there")
