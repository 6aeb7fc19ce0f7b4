"""Run the kernels under the address and undefined-behaviour sanitizers.

``make sanitize`` compiles the kernels with both sanitizers into ``build/sanitize``, and runs the tests of the kernels
and the campaign of wrong calls with them. A finding ends the command. This needs gcc on Linux.
"""

import argparse
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "build" / "sanitize"
TESTS = [f"tests/engine/test_{name}.py" for name in ("native", "dropout", "thin", "gemm", "operators", "not_a_number")]
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g")


def pytest_configure(config: Any) -> None:
    """Disable the memory pool in tests, which load this file as a plugin, so that each tensor has bounds."""
    from synthattn.engine import memory_pool

    memory_pool.UNIT = 2**60


def compile_with_sanitizers(compiler: str) -> None:
    specification = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert specification is not None
    assert specification.loader is not None
    build = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(build)
    TARGET.mkdir(parents=True, exist_ok=True)
    for name, machine in build.LEVELS[platform.machine()].items():
        print(f"compiling kernels.{name}.so with {SANITIZERS[0]}", flush=True)
        build.compile_kernels(compiler, ROOT / build.FOLDER, TARGET / f"kernels.{name}.so", machine, SANITIZERS)


def environment(compiler: str) -> dict[str, str]:
    """Return the environment of a process that loads the kernels with sanitizers."""
    found = [
        subprocess.run(
            [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libstdc++.so.6")  # the second library lets torch's exceptions through
    ]
    return os.environ | {
        "SYNTHATTN_KERNELS": str(TARGET),
        "LD_PRELOAD": " ".join(found),
        # Python and torch keep memory until they exit, and torch's libraries are not instrumented.
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:abort_on_error=1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--calls", type=int, default=2000, help="how many wrong calls to make")
    given = parser.parse_args()
    compiler = os.environ.get("CC") or shutil.which("gcc")
    if compiler is None:
        parser.error("there is no gcc; install it, or name another compiler with CC=")
    compile_with_sanitizers(compiler)
    loaded = "from synthattn.engine.native.library import load; import sys; sys.exit(load() is None)"
    tests = ["-m", "pytest", "-q", "-n", "0", "-p", "tools.sanitize", "-p", "no:cacheprovider", *TESTS]
    calls = ["-m", "tools.faults", "wrong_calls", "--count", str(given.calls)]
    for command in (["-c", loaded], tests, calls):
        print(f"python {' '.join(command)}", flush=True)
        code = subprocess.run([sys.executable, *command], env=environment(compiler), cwd=ROOT).returncode
        if code != 0:
            print(f"sanitize: failed with code {code}", file=sys.stderr)
            return 1
    print("sanitize: no findings")
    return 0


if __name__ == "__main__":
    sys.exit(main())
