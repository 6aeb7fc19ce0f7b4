"""Every size at which the engine changes its way, each with what it balances.

``python benchmarks/thresholds.py NAME`` measures the two ways on both sides of a threshold, on this machine.
"""

import functools
from pathlib import Path

import torch

# Logits of one example from which the compiled kernel is faster than torch's operations.
COMPILED_LOGITS = 2**16
# Logits of one example from which the compiled kernel is faster than torch's fused one at a lone product, by vendor and
# vectors of the processor. Where none is named, torch's is taken.
PRODUCT_LOGITS = {("AuthenticAMD", "AVX512"): 2**17, ("GenuineIntel", "AVX512"): 2**21}
# Multiplications from which the compiled matrix product is faster than torch's, by processor. Where none is named,
# torch's is taken: the MKL in it uses AVX-512 on processors of Intel, and no more than AVX2 on those of AMD.
MULTIPLICATIONS = {("AuthenticAMD", "AVX512"): 2**23}
# Rows, columns and depth from which it is: smaller ones fill no tile.
SHORTEST_AXIS = 16
# Logits of one example from which a table is not written anew to add a row of keys to it, and narrow factors of a table
# stay factors.
LARGE_TABLE = 2**22
# Columns of factors that cost each example no more than reading the table that they make once.
NARROW_FACTORS = 16

# Weights of all heads from which it takes longer to write them, with their gradients, than to compute them twice.
UNWRITTEN_WEIGHTS = 2**24
# Rows per block of a causal product. Smaller blocks skip more of the upper triangle, larger ones multiply faster.
CAUSAL_ROWS = 128

# Comparing a parameter with its snapshot costs up to half of computing the exponential of a logit.
EXPONENTIALS_PER_COMPARISON = 2
# Entries from which a table is compared by digests. Smaller ones are cheaper to copy and compare.
DIGESTED_ENTRIES = 2**20

# Keys from which torch's fused kernel on the CPU is exact: with fewer keys than a vector has floats, it turns a row of
# NaN into zeros. This one is a property of torch, found by tests/test_not_a_number.py.
FUSED_KEYS = 16

# Queries per block of logits by distance: few of them multiply slowly, many of them waste part of a tile.
LINEAR_ROWS = 128
# Keys from which logits by distance are multiplied in linear time, in multiples of the keys that a block of rows sees.
LINEAR_SPANS = 4

# Queries per block of a local window.
WINDOW_ROWS = 64

# Logits of the whole batch from which the plain way runs in chunks, and logits of a chunk.
CHUNKED_LOGITS = 2**22
CHUNK_LOGITS = 2**21
# Rows of a chunk at least: products of fewer rows are slow.
CHUNK_ROWS = 128

# What follows is for accelerators. No machine was at hand to measure these on.
# Entries of a mask of floats that is written at a time, for torch's fused kernel.
FUSED_MASK = 2**25
# The widest head that all fused kernels of torch take.
WIDEST_HEAD = 256
# Logits of a chunk of the plain way.
ACCELERATOR_CHUNK_LOGITS = 2**26
# Rows per block of a causal product: each block is a launch.
ACCELERATOR_CAUSAL_ROWS = 1024


@functools.cache
def processor() -> tuple[str, str]:
    """Return the vendor of the processor and the widest vectors of torch, such as ("AuthenticAMD", "AVX512")."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    vendors = (line.split(":")[1].strip() for line in lines if line.startswith("vendor_id"))
    return next(vendors, "unknown"), torch.backends.cpu.get_cpu_capability()
