import gc
import os

# Some virtual machines announce AMX but cannot run it, and oneDNN's half-precision products crash there.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
# One thread makes the sums of the tests reproducible, and the tests faster: their tensors are small. This is for the
# processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import functools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import vl_convert

import shape_checks

shape_checks.install()

torch.set_num_threads(1)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the files that ``-m`` would deselect, because importing them takes long: whole files are marked."""
    wanted = {"unchecked": True, "not unchecked": False}.get(config.option.markexpr)
    if wanted is None or collection_path.suffix != ".py":
        return None
    marked = "pytest.mark.unchecked" in collection_path.read_text(encoding="utf-8")
    return True if marked != wanted else None


def pytest_collection_finish() -> None:
    """Leave what the imports made out of garbage collection, which every run of transformers' Trainer asks for."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _equal_charts_are_drawn_once() -> Iterator[None]:
    """Keep drawings, because many tests make the same page but for a word."""
    draw = functools.cache(vl_convert.vegalite_to_svg)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vl_convert, "vegalite_to_svg", lambda spec, **options: draw(json.dumps(spec), **options))
        yield


@pytest.fixture(autouse=True)
def _fused_for_any_number_of_keys(monkeypatch):
    """Let small inputs take torch's fused kernel, which most tests could not reach otherwise."""
    monkeypatch.setattr("synthattn.engine.thresholds.FUSED_KEYS", 0)


@pytest.fixture
def command(capsys, monkeypatch) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command in this process, which has imported all that takes long, and return what it prints."""
    from synthattn.cli.app import main

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["synthattn", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        code = ended.value.code
        return subprocess.CompletedProcess(arguments, code if isinstance(code, int) else 0, said.out, said.err)

    return call
