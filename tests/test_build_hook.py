"""The build hook compiles what the package looks for, wherever that is possible, and says why where it is not."""

import os
import platform
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hatch_build
import pytest
import torch

from helpers import needs_kernels
from synthattn.engine.native import library

SLOWER = "mixtures with the dot product and generation will be slower on the CPU"


@pytest.fixture
def commands(monkeypatch) -> list[tuple[str, ...]]:
    """The commands that would compile and link; each only makes an empty file."""
    found: list[tuple[str, ...]] = []

    def run(*command: str) -> None:
        found.append(command)
        Path(command[command.index("-o") + 1]).touch()

    monkeypatch.setattr(hatch_build, "run", run)
    return found


@pytest.fixture
def root(tmp_path) -> Path:
    """A project with the sources of the kernels, and with a library that was compiled before."""
    folder = tmp_path / hatch_build.FOLDER
    folder.mkdir(parents=True)
    for source in library.FOLDER.glob("*.[ch]"):
        shutil.copy(source, folder)
    (folder / "kernels.old.so").touch()
    return tmp_path


def on(monkeypatch, system: str, machine: str) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)


def build(root: Path, target: str = "wheel") -> tuple[dict[str, Any], list[str], list[str]]:
    """Run the hook; return what it says about the wheel, its warnings, and the libraries that are there."""
    data: dict[str, Any] = {"artifacts": []}
    warnings: list[str] = []
    app: Any = SimpleNamespace(display_warning=warnings.append)
    nothing: Any = None
    hook = hatch_build.CompileKernel(str(root), {}, nothing, nothing, str(root), target, app)
    hook.initialize("standard", data)
    return data, warnings, sorted(path.name for path in (root / hatch_build.FOLDER).iterdir() if path.suffix == ".so")


@pytest.mark.parametrize(
    ("system", "machine", "tag", "libraries"),
    [
        ("linux", "x86_64", "linux_x86_64", ["kernels.avx2.so", "kernels.avx512.so"]),
        ("linux", "aarch64", "linux_aarch64", ["kernels.neon.so"]),
        ("darwin", "arm64", "macosx_11_0_arm64", ["kernels.neon.so"]),
    ],
)
def test_every_platform_has_its_libraries_and_its_tag(monkeypatch, commands, root, system, machine, tag, libraries):
    on(monkeypatch, system, machine)
    monkeypatch.setenv("CC", "some-compiler --some-option")
    data, warnings, found = build(root)
    assert found == libraries
    assert warnings == []
    expected = {"artifacts": ["src/synthattn/engine/native/*.so"], "pure_python": False, "tag": f"py3-none-{tag}"}
    assert data == expected
    for command in commands:
        assert command[:2] == ("some-compiler", "--some-option")
        assert not any("openmp" in option for option in command)
        assert ("-mmacosx-version-min=11.0" in command) == (system == "darwin")
    compiling = [command for command in commands if "-c" in command]
    assert len(compiling) == len(libraries) * len(list(library.FOLDER.glob("*.c")))
    for command in compiling:
        assert any(option.startswith("-march=x86-64-v") for option in command) == (machine == "x86_64")


@pytest.mark.parametrize(("system", "machine"), [("win32", "AMD64"), ("linux", "riscv64")])
def test_other_platforms_are_named_in_a_warning(monkeypatch, root, system, machine):
    on(monkeypatch, system, machine)
    assert build(root) == ({"artifacts": []}, [f"no kernels for {system} on {machine}: {SLOWER}"], [])


def test_without_a_compiler_a_warning_says_so(monkeypatch, root, tmp_path):
    on(monkeypatch, "linux", "x86_64")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build(root) == ({"artifacts": []}, [f"no C compiler: {SLOWER}"], [])


def test_the_words_of_a_compiler_that_fails_are_in_the_warning(monkeypatch, root, tmp_path):
    on(monkeypatch, "linux", "x86_64")
    compiler = tmp_path / "compiler"
    compiler.write_text("#!/bin/sh\necho no such processor >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    assert build(root) == ({"artifacts": []}, [f"{SLOWER}: no such processor\n"], [])
    monkeypatch.setenv("CC", str(tmp_path / "missing"))
    data, [warning], found = build(root)
    assert (data, found) == ({"artifacts": []}, [])
    assert warning.startswith(f"{SLOWER}: ")
    assert "missing" in warning


def test_source_distributions_are_left_alone(monkeypatch, commands, root):
    on(monkeypatch, "linux", "x86_64")
    assert build(root, target="sdist") == ({"artifacts": []}, [], ["kernels.old.so"])
    assert commands == []


def test_a_compiler_is_chosen_in_order(monkeypatch, tmp_path):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert hatch_build.find_compiler() is None
    for name in ("clang", "cc", "gcc"):
        (tmp_path / name).touch(mode=0o755)
        assert hatch_build.find_compiler() == str(tmp_path / name)
    monkeypatch.setenv("CC", "another")
    assert hatch_build.find_compiler() == "another"


@pytest.mark.parametrize(
    ("machine", "capability", "expected"),
    [
        ("x86_64", "AVX2", "kernels.avx2.so"),
        ("x86_64", "AVX512", "kernels.avx512.so"),
        ("aarch64", "DEFAULT", "kernels.neon.so"),
        ("aarch64", "SVE256", "kernels.neon.so"),
        ("arm64", "DEFAULT", "kernels.neon.so"),
    ],
)
def test_the_package_looks_for_a_library_that_is_compiled(monkeypatch, machine, capability, expected):
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert library.file_name() == expected
    assert expected in {f"kernels.{level}.so" for level in hatch_build.LEVELS[machine]}


def test_processors_without_vectors_have_no_library(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    assert library.file_name() not in {f"kernels.{level}.so" for level in hatch_build.LEVELS["x86_64"]}


@needs_kernels
def test_the_kernels_bring_no_threads_of_their_own(monkeypatch):
    """They are not linked with OpenMP, and are not used where torch has none."""
    path = Path(os.environ.get("SYNTHATTN_KERNELS") or library.FOLDER) / library.file_name()
    assert not any(name in path.read_bytes() for name in (b"libgomp", b"libomp", b"pthread_create"))
    assert library.load.__wrapped__() is not None
    # As if this were torch, which then has nothing but a C library.
    monkeypatch.setattr(torch._C, "__file__", str(path))
    assert library.load.__wrapped__() is None
