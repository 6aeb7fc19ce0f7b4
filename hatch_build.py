"""Compile the kernels of synthattn.engine.native where that is possible; the package works without them, too."""

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src/synthattn/engine/native")
COMPILERS = ("gcc", "cc", "clang")
SLOWER = "mixtures with the dot product and generation will be slower on the CPU"

# The libraries of each machine, and the options with which GCC and Clang compile them. The names are those that
# synthattn.engine.native.library looks for. NEON is part of every 64-bit ARM processor.
WIDE = "-mprefer-vector-width=512"
LEVELS = {
    "x86_64": {"avx2": ("-march=x86-64-v3", WIDE), "avx512": ("-march=x86-64-v4", WIDE)},
    "aarch64": {"neon": ()},
}
LEVELS["arm64"] = LEVELS["aarch64"]  # the name that macOS has for it

OPTIONS = ("-std=gnu17", "-O3", "-ffp-contract=fast")
# For each system, the platform of a wheel and options for the compiler and the linker. OpenMP is not among them: the
# kernels are handed the functions of the one that torch has loaded.
SYSTEMS = {
    "linux": ("linux_{machine}", ()),
    "darwin": ("macosx_11_0_{machine}", ("-mmacosx-version-min=11.0",)),
}


class CompileKernel(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        folder, machine, compiler = Path(self.root) / FOLDER, platform.machine(), find_compiler()
        for old in folder.glob("*.so"):
            old.unlink()
        if sys.platform not in SYSTEMS or machine not in LEVELS:
            self.app.display_warning(f"no kernels for {sys.platform} on {machine}: {SLOWER}")
            return
        if compiler is None:
            self.app.display_warning(f"no C compiler: {SLOWER}")
            return
        try:
            for name, options in LEVELS[machine].items():
                compile_kernels(compiler, folder, folder / f"kernels.{name}.so", options)
        except (OSError, subprocess.CalledProcessError) as error:
            said = getattr(error, "stderr", None) or str(error)
            self.app.display_warning(f"{SLOWER}: {said}")
            return
        build_data["artifacts"].append(f"{FOLDER}/*.so")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{SYSTEMS[sys.platform][0].format(machine=machine)}"


def find_compiler() -> str | None:
    """Return the command of a C compiler: the variable CC, or the first one that is installed."""
    return os.environ.get("CC") or next(filter(None, map(shutil.which, COMPILERS)), None)


def compile_kernels(
    compiler: str, folder: Path, target: Path, machine: Iterable[str], extra: Iterable[str] = ()
) -> None:
    """Compile all sources of a folder to one library.

    ``compiler`` is a command, which may contain options; ``machine`` are options for the compiler, ``extra`` also for
    the linker.
    """
    command = shlex.split(compiler)
    linked, sources = target.with_suffix(".new"), sorted(folder.glob("*.[ch]"))
    # As synthattn.engine.native.library computes it.
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    both = ("-fPIC", *SYSTEMS[sys.platform][1], *extra)
    options = (*OPTIONS, f'-DSOURCE="{digest}"', *machine)
    made = {source: target.with_suffix(f".{source.stem}.o") for source in sources if source.suffix == ".c"}
    try:
        for source, compiled in made.items():
            run(*command, *options, *both, "-c", str(source), "-o", str(compiled))
        run(*command, "-shared", *both, *map(str, made.values()), "-lm", "-o", str(linked))
        linked.replace(target)
    finally:
        for left in (*made.values(), linked):
            left.unlink(missing_ok=True)


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
