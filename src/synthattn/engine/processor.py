"""The processor that this runs on, as the measured thresholds name it."""

import functools
from pathlib import Path

import torch


@functools.cache
def processor() -> tuple[str, str]:
    """Return the vendor and the widest vectors that torch uses, such as ("AuthenticAMD", "AVX512")."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    vendors = (line.split(":")[1].strip() for line in lines if line.startswith("vendor_id"))
    return next(vendors, "unknown"), torch.backends.cpu.get_cpu_capability()
