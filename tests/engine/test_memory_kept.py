"""Freed memory is kept while models train."""

import os
import subprocess
import sys

import pytest

from synthattn.training import memory

pytestmark = pytest.mark.unchecked

FAULTS = """
import resource, sys, torch
from synthattn.training.memory import keep_memory
if sys.argv[1] == "kept":
    assert keep_memory()
for _ in range(20):  # aligned blocks need a few before one fits
    torch.zeros(10_000_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    torch.zeros(10_000_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(kind: str) -> int:
    """How often the system had to find a page for ten tensors of 40 MB, one after the other."""
    clean = {name: value for name, value in os.environ.items() if name not in memory.VARIABLES}
    done = subprocess.run([sys.executable, "-c", FAULTS, kind], env=clean, capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc alone")
def test_the_next_tensor_gets_the_pages_of_the_last():
    assert faults("kept") < 100 < faults("given back") / 10


@pytest.mark.parametrize("name", memory.VARIABLES)
def test_who_has_chosen_is_left_alone(name, monkeypatch):
    monkeypatch.setenv(name, "1")
    assert not memory.keep_memory()
