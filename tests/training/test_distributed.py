"""Data parallel training in two processes, as torchrun starts them."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.unchecked

SCRIPT = """
import os, sys, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
sys.path.insert(0, sys.argv[1])
from model_helpers import DECODING, ENCODING, KINDS, config, ids, labels_for
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
cases = [("causal-lm", s) for s in DECODING] + [("seq2seq", s) for s in DECODING[::4]]
cases += [(k, s) for k in ("masked-lm", "classifier") for s in ENCODING[-3:]]
for kind, spec in cases:
    torch.manual_seed(0)
    model = DistributedDataParallel(KINDS[kind](config(spec)))   # find_unused_parameters=False
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):  # the second step fails if the first left a parameter without a gradient
        x = ids(3, 7, seed=10 * step + rank)
        optimizer.zero_grad()
        model(x, labels=labels_for(kind, x)).loss.backward()
        optimizer.step()
    total = torch.stack([p.detach().double().sum() for p in model.parameters()])
    both = [torch.zeros_like(total) for _ in range(2)]
    dist.all_gather(both, total)
    assert torch.equal(*both), (kind, spec)
if rank == 0:
    print("trained", len(cases), flush=True)
del model
dist.barrier()
dist.destroy_process_group()
os._exit(0)  # threads of torch that are still there when Python ends abort it now and then
"""


@pytest.mark.parametrize("processes", [2])
def test_no_parameter_is_left_out(processes, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    tests = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={processes}", "--standalone"]
    result = subprocess.run([*command, str(script), tests], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr[-3000:]
    assert "trained" in result.stdout
