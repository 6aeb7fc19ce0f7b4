"""Memory while a large text file is read, and while it is encoded: ``streaming.py [--gigabytes 2]``.

Each step runs in a process of its own, whose peak memory is compared with that of the same step on a small file.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

SMALL = 2_000_000


def write(path: Path, size: int) -> None:
    line = "the old man sees a small house near the green tree and walks on {} .\n"
    with path.open("w") as file:
        written = n = 0
        while written < size:
            block = "".join(line.format(n + k) for k in range(10_000))
            written += file.write(block)
            n += 10_000


def read(path: str) -> None:
    from synthattn.data.open import open_source

    for _ in open_source(path).read("train"):
        pass


def encode(path: str) -> None:
    from synthattn.data.open import open_source
    from synthattn.data.tokenizers import train_tokenizer
    from synthattn.tasks import find_task
    from synthattn.tasks.encoding import Limits
    from synthattn.tasks.encoding import encode as encode_split

    tokenizer = train_tokenizer("words", ["the old man sees a small house near the green tree and walks on ."], 200)
    encode_split(find_task("language-modeling"), open_source(path), "train", tokenizer, Limits(64, 64))


STEPS = {"read": read, "encode": encode}


def peak(step: str, path: Path, cache: str) -> float:
    """Megabytes."""
    command = [sys.executable, __file__, "--step", step, str(path)]
    result = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | {"SYNTHATTN_CACHE": cache}
    )
    return float(result.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--step", nargs=2, metavar=("STEP", "PATH"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        step, path = arguments.step
        STEPS[step](path)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        return
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder) / "small.txt", Path(folder) / "large.txt"
        write(small, SMALL)
        write(large, int(arguments.gigabytes * 1e9))
        for step in STEPS:
            few, many = (peak(step, path, f"{folder}/cache") for path in (small, large))
            sizes = f"{small.stat().st_size / 1e6:.0f} MB and {large.stat().st_size / 1e6:,.0f} MB"
            print(f"{step}: peak {few:.0f} MB and {many:.0f} MB for files of {sizes}", flush=True)


if __name__ == "__main__":
    main()
