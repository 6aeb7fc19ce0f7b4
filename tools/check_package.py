"""Build the wheel and the sdist, install each into an empty environment, and use it there.

    python tools/check_package.py

Takes minutes: torch is installed twice, at the version that constraints.txt pins. Needs the package ``build``.
"""

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
SMOKE = """
import torch
import synthattn

layer = synthattn.SyntheticAttention(d_model=64, num_heads=4, attention="random+vanilla", max_length=32)
x = torch.randn(2, 17, 64)
y, weights = layer(x, is_causal=True, need_weights=True)
assert y.shape == x.shape and weights.shape == (2, 4, 17, 17)
assert torch.allclose(weights.sum(-1), torch.ones(2, 4, 17))
layer(x, is_causal=True).sum().backward()
assert all(parameter.grad is not None for parameter in layer.parameters())

from synthattn.models import SynthesizerForCausalLM, presets

model = SynthesizerForCausalLM(presets.tiny(vocab_size=53, attention="dense"))
assert model.generate(torch.tensor([[5, 6, 7]]), max_new_tokens=3, eos_token_id=-1).shape == (1, 6)

from synthattn.engine.native.library import load

print(f"version {synthattn.__version__}, compiled kernel: {'none' if load() is None else 'found'}")
"""


def run(*command: str | Path, folder: Path) -> str:
    """Run a command, show it, and return what it printed."""
    words = [str(word) for word in command]
    shown = " ".join("..." if "\n" in word else word for word in words)
    print(f"$ {shown}", flush=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{done.stdout}{done.stderr}\n{shown} ended with exit code {done.returncode}")
    return done.stdout


def check(archive: Path, folder: Path) -> None:
    """Install an archive into a new environment in a folder, and use it from outside the source tree."""
    folder.mkdir()
    venv.create(folder / "environment", with_pip=True)
    programs = folder / "environment" / ("Scripts" if sys.platform == "win32" else "bin")
    python, constraints = programs / "python", ROOT / "constraints.txt"
    run(python, "-m", "pip", "install", "--quiet", "--no-compile", "-c", constraints, archive, folder=folder)
    print(run(python, "-I", "-c", SMOKE, folder=folder), end="")
    version = run(programs / "synthattn", "--version", folder=folder).split()[-1]
    assert archive.name.startswith(f"synthattn-{version}"), f"{archive.name} says that it is version {version}"
    run(programs / "synthattn", "describe", "tiny", "--attention", "random", folder=folder)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(sys.executable, "-m", "build", "--outdir", folder / "dist", ROOT, folder=folder)
        archives = sorted((folder / "dist").iterdir())
        assert {path.suffix for path in archives} == {".whl", ".gz"}, archives
        for archive in archives:
            check(archive, folder / archive.suffix[1:])
            print(f"{archive.name} works ({archive.stat().st_size / 1e3:,.0f} kB)")


if __name__ == "__main__":
    main()
