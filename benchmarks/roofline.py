"""Predict the forward pass of an attention layer on a GPU from its data sheet. No GPU was measured.

``python benchmarks/roofline.py --gpu a100`` prints, for each variant, operations, bytes, a predicted time, and its
ratio to vanilla. Each kernel takes the time of its operations or of its bytes, whichever is longer, in half precision.
Launches, caches and what kernels lose are left out, so the times are lower bounds.
"""

import argparse
from dataclasses import dataclass

BYTES = 2  # of a number in half precision
D_MODEL, HEADS, WIDTH, RANK = 512, 8, 64, 8


@dataclass(frozen=True)
class Gpu:
    """Figures of a data sheet: operations per second in bfloat16 without sparsity, and bytes per second of memory."""

    name: str
    operations: float
    bandwidth: float


# From NVIDIA's data sheets. Those of the L4 and the H100 give operations with sparsity, which are twice as many.
# https://images.nvidia.com/content/technologies/volta/pdf/volta-v100-datasheet-update-us-1165301-r5.pdf
# https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf
# https://www.nvidia.com/en-us/data-center/l4
# https://resources.nvidia.com/en-us-tensor-core/nvidia-tensor-core-gpu-datasheet
GPUS = {
    "v100": Gpu("NVIDIA V100 SXM2 (float16)", 125e12, 900e9),
    "a100": Gpu("NVIDIA A100 SXM 80 GB", 312e12, 2039e9),
    "l4": Gpu("NVIDIA L4", 242e12 / 2, 300e9),
    "h100": Gpu("NVIDIA H100 SXM", 1979e12 / 2, 3350e9),
}


@dataclass(frozen=True)
class Kernel:
    """One kernel: its operations, and the bytes that it reads and writes."""

    operations: float
    bytes: float

    def seconds(self, gpu: Gpu) -> float:
        return max(self.operations / gpu.operations, self.bytes / gpu.bandwidth)


def product(count: int, rows: int, inner: int, columns: int) -> Kernel:
    """Return ``count`` products of a ``(rows, inner)`` and an ``(inner, columns)`` matrix."""
    entries = rows * inner + inner * columns + rows * columns
    return Kernel(2.0 * count * rows * inner * columns, BYTES * count * entries)


def fused(batch: int, length: int, width: int, with_bias: bool = False) -> Kernel:
    """Return fused attention with heads of a width that is a multiple of eight, as ``engine/sdpa_sums.py`` calls it."""
    pairs = batch * HEADS * length**2
    memory = 4 * batch * HEADS * length * width + (pairs if with_bias else 0)
    return Kernel(4.0 * pairs * width, BYTES * memory)


def kernels(variant: str, batch: int, length: int) -> list[Kernel]:
    """Return the kernels of the forward pass without a mask."""
    projection = product(1, batch * length, D_MODEL, HEADS * WIDTH)
    table = Kernel(0, 2 * BYTES * HEADS * length**2)  # its softmax, or its weight: read and written once
    shared = product(HEADS, length, length, batch * WIDTH)
    factors = product(HEADS, length, RANK, length)
    always = [projection] * 2
    return {
        "vanilla": [*always, projection, projection, fused(batch, length, WIDTH)],
        "random": [*always, table, shared],
        "factorized_random": [*always, factors, table, shared],
        "dense": [*always, projection, fused(batch, length, _eights(WIDTH + 1))],
        "random+vanilla": [*always, projection, projection, table, fused(batch, length, WIDTH, with_bias=True)],
        "factorized_random+vanilla": [*always, projection, projection, fused(batch, length, _eights(WIDTH + RANK))],
        "dense+vanilla": [*always, *[projection] * 3, fused(batch, length, _eights(2 * WIDTH + 1))],
    }[variant]


VARIANTS = (
    "vanilla",
    "random",
    "factorized_random",
    "dense",
    "random+vanilla",
    "factorized_random+vanilla",
    "dense+vanilla",
)


def _eights(width: int) -> int:
    return -(-width // 8) * 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", choices=GPUS, default="a100")
    parser.add_argument("--shapes", default="16x512,4x2048,1x8192", help="BATCHxLENGTH, with commas between")
    options = parser.parse_args()
    gpu = GPUS[options.gpu]
    print(f"Prediction from the data sheet of {gpu.name}; nothing was measured. Forward pass, d 512, 8 heads.")
    for shape in options.shapes.split(","):
        batch, length = map(int, shape.split("x"))
        vanilla = sum(kernel.seconds(gpu) for kernel in kernels("vanilla", batch, length))
        print(f"\n{shape:26}{'GFLOP':>9}{'MB':>9}{'us':>9}{'of vanilla':>12}")
        for variant in VARIANTS:
            found = kernels(variant, batch, length)
            seconds = sum(kernel.seconds(gpu) for kernel in found)
            operations, memory = sum(k.operations for k in found), sum(k.bytes for k in found)
            row = f"{operations / 1e9:9.1f}{memory / 1e6:9.1f}{seconds * 1e6:9.1f}{vanilla / seconds:11.2f}x"
            print(f"{variant:26}{row}")


if __name__ == "__main__":
    main()
