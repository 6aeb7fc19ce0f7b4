"""Check the compiled kernels with every compiler and every kind of processor that this machine has or emulates.

``python -m tools.check_portability`` compiles the kernels with ``tools/kernel_harness.c``, which compares them with
plain equations in double precision, and runs the result: with GCC and Clang, for AVX2, AVX-512 and NEON. qemu-aarch64
emulates NEON unless the machine has it. The check prints the largest error of each build, and exits with 1 if one is
wrong. What is missing is skipped, and named; Debian has it all:
``apt-get install clang libomp-dev qemu-user gcc-aarch64-linux-gnu``.
"""

import argparse
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import hatch_build

ROOT = Path(__file__).parents[1]
NATIVE, TARGET = ROOT / hatch_build.FOLDER, ROOT / "build" / "portability"


@dataclass(frozen=True)
class Build:
    """A command that compiles, what links OpenMP, and the level of ``hatch_build.LEVELS`` to compile for."""

    compiler: str
    openmp: str
    machine: str
    level: str
    emulator: str = ""

    @property
    def name(self) -> str:
        return f"{self.level}, {self.compiler}"

    def missing(self) -> str | None:
        """Return what this machine lacks for it, or None."""
        for command in filter(None, (self.compiler, self.emulator)):
            if shutil.which(shlex.split(command)[0]) is None:
                return shlex.split(command)[0]
        if self.machine == platform.machine() == "x86_64" and self.level not in processor_flags():
            return f"a processor with {self.level}"
        return None

    def compile(self, target: Path) -> None:
        sources = [source for source in sorted(NATIVE.glob("*.c")) if source.name != "attention.c"]
        hatch_build.run(
            *shlex.split(self.compiler),
            *hatch_build.OPTIONS,
            *hatch_build.LEVELS[self.machine][self.level],
            *("-Wall", "-Wextra", "-Werror", '-DSOURCE=""', "-I", str(NATIVE)),
            *(str(ROOT / "tools" / "kernel_harness.c"), *map(str, sources)),
            *(self.openmp, "-lm", "-o", str(target)),
        )


def builds() -> Iterator[Build]:
    """Yield all builds for this machine and those that it emulates.

    Clang links libomp, which torch has on macOS; a cross compiler has nothing but libgomp.
    """
    here = platform.machine()
    for level in hatch_build.LEVELS[here]:
        yield Build("gcc", "-fopenmp", here, level)
        yield Build("clang", "-fopenmp", here, level)
    if here == "x86_64":
        emulator = "qemu-aarch64 -L /usr/aarch64-linux-gnu"
        yield Build("aarch64-linux-gnu-gcc", "-lgomp", "aarch64", "neon", emulator)
        yield Build("clang --target=aarch64-linux-gnu", "-lgomp", "aarch64", "neon", emulator)


def processor_flags() -> str:
    return Path("/proc/cpuinfo").read_text()


def check(build: Build, verbose: bool) -> bool:
    """Compile, run and print; return True if the kernels are right."""
    target = TARGET / re.sub(r"\W+", "-", build.name)
    try:
        build.compile(target)
    except subprocess.CalledProcessError as error:
        print(f"{build.name}: does not compile\n{error.stderr}")
        return False
    done = subprocess.run([*shlex.split(build.emulator), str(target)], capture_output=True, text=True)
    errors = [float(number) for number in re.findall(r" (\d\.\de[-+]\d+)", done.stdout)]
    print(f"{build.name}: largest error {max(errors, default=float('nan')):.1e}, exit code {done.returncode}")
    if verbose or done.returncode != 0:
        print(done.stdout + done.stderr)
    return done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--verbose", action="store_true", help="print the errors of every case")
    given = parser.parse_args()
    TARGET.mkdir(parents=True, exist_ok=True)
    right = []
    for build in builds():
        if lacks := build.missing():
            print(f"{build.name}: skipped, there is no {lacks}")
        else:
            right.append(check(build, given.verbose))
    print(f"{sum(right)} of {len(right)} builds are right")
    return 0 if right and all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
