"""The check of the kernels in C accepts them, and finds faults."""

import shutil
from dataclasses import replace

import pytest

from helpers import needs_kernels
from tools import check_portability

pytestmark = needs_kernels


@pytest.fixture
def build(monkeypatch, tmp_path) -> check_portability.Build:
    """The first build that this machine can do, of a copy of the sources."""
    copy = tmp_path / "native"
    shutil.copytree(check_portability.NATIVE, copy)
    monkeypatch.setattr(check_portability, "NATIVE", copy)
    monkeypatch.setattr(check_portability, "TARGET", tmp_path)
    return next(build for build in check_portability.builds() if build.missing() is None)


def test_right_kernels_pass(build, capsys):
    assert check_portability.check(build, verbose=False)
    assert "exit code 0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("file", "right", "wrong"),
    [
        ("attention.c", "at->row + r + 1 - at->key", "at->row + r - at->key"),
        ("threads.c", "team->tasks * (thread + 1) / threads", "team->tasks * thread / threads"),
    ],
)
def test_faults_are_found(build, capsys, file, right, wrong):
    source = check_portability.NATIVE / file
    assert right in source.read_text()
    source.write_text(source.read_text().replace(right, wrong))
    assert not check_portability.check(build, verbose=False)
    assert " WRONG" in capsys.readouterr().out


def test_a_compiler_that_fails_is_named(build, capsys):
    assert not check_portability.check(replace(build, compiler="false"), verbose=False)
    assert "does not compile" in capsys.readouterr().out
