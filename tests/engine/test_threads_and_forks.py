"""Threads and forked processes compute as docs/attention.md says."""

import copy
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from synthattn import SyntheticAttention

pytestmark = pytest.mark.unchecked


@pytest.mark.parametrize("attention", ["random", "random+vanilla"])
def test_threads_may_share_a_layer(attention: str):
    torch.manual_seed(0)
    inputs = [torch.randn(batch, length, 24) for batch, length in ((8, 67), (1, 67), (3, 31), (2, 7))]
    for _ in range(2):  # cached weights are made anew for each
        layer = SyntheticAttention(24, 3, attention, 67).eval()
        with torch.no_grad():
            expected = [copy.deepcopy(layer)(x) for x in inputs]

        def call(n: int, layer: SyntheticAttention = layer) -> torch.Tensor:
            with torch.inference_mode() if n % 2 else torch.no_grad():
                return layer(inputs[n % 4])

        with ThreadPoolExecutor(8) as pool:
            for n, found in enumerate(pool.map(call, range(40))):
                torch.testing.assert_close(found, expected[n % 4])


FORKED = """
import os, torch
from torch.utils.data import DataLoader, Dataset
from synthattn import SyntheticAttention

torch.set_num_threads(2)
layer = SyntheticAttention(64, 4, "random+vanilla", 256).eval()
x = torch.randn(8, 200, 64)

class Calls(Dataset):
    def __len__(self): return 8
    def __getitem__(self, n):
        with torch.inference_mode(): return layer(x[n : n + 1])[0]

with torch.inference_mode(): expected = layer(x)
found = torch.stack([batch[0] for batch in DataLoader(Calls(), num_workers=1)])
torch.testing.assert_close(found, expected)
child = os.fork()
if not child:
    torch.set_num_threads(1)
    with torch.inference_mode(): same = torch.allclose(layer(x), expected, atol=1e-5)
    os._exit(0 if same else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_with_one_thread_computes():
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=100)
    assert (done.stdout, done.returncode) == ("0\n", 0), done.stderr
