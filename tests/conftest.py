import os

# Some virtual machines announce AMX but cannot run it, and oneDNN's half-precision products crash there.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import torch

# One thread makes the sums of the tests reproducible, and the tests faster: their tensors are small.
torch.set_num_threads(1)
