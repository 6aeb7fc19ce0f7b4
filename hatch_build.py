"""Compile the kernels of synthattn.engine.native where that is possible; the package works without them, too."""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src/synthattn/engine/native")
# As torch calls what a processor can do, and as compilers do.
LEVELS = {"avx2": "x86-64-v3", "avx512": "x86-64-v4"}


class CompileKernel(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or sys.platform != "linux" or platform.machine() != "x86_64":
            return
        folder = Path(self.root) / FOLDER
        for old in folder.glob("*.so"):
            old.unlink()
        compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            self.app.display_warning(
                "no C compiler: mixtures with the dot product and generation will be slower on the CPU"
            )
            return
        try:
            for name, machine in LEVELS.items():
                compile_kernels(compiler, folder, folder / f"kernels.{name}.so", machine)
        except (OSError, subprocess.CalledProcessError) as error:
            said = getattr(error, "stderr", None) or str(error)
            self.app.display_warning(f"mixtures with the dot product and generation will be slower on the CPU: {said}")
            return
        build_data["artifacts"].append(f"{FOLDER}/*.so")
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-linux_x86_64"


def compile_kernels(compiler: str, folder: Path, target: Path, machine: str, extra: tuple[str, ...] = ()) -> None:
    """Compile all sources of a folder to one library; ``extra`` are options for the compiler and the linker."""
    linked, sources = target.with_suffix(".new"), sorted(folder.glob("*.[ch]"))
    # As synthattn.engine.native.library computes it.
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    options = ["-std=gnu17", "-O3", f"-march={machine}", "-mprefer-vector-width=512", "-fopenmp", "-fPIC", *extra]
    made = {source: target.with_suffix(f".{source.stem}.o") for source in sources if source.suffix == ".c"}
    try:
        for source, compiled in made.items():
            run(compiler, *options, f'-DSOURCE="{digest}"', "-c", str(source), "-o", str(compiled))
        # Not linked with OpenMP: its threads shall be those of the one that torch brings and has loaded.
        run(compiler, "-shared", *extra, *map(str, made.values()), "-lm", "-o", str(linked))
        linked.replace(target)
    finally:
        for left in (*made.values(), linked):
            left.unlink(missing_ok=True)


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
