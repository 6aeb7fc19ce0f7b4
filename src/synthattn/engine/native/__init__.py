"""The compiled kernels: C sources and their binding.

The kernels are there where the package was installed with GCC or Clang at hand, on Linux or macOS, for processors with
AVX2, AVX-512 or NEON. Padding is never multiplied, nor is the future; a row without keys gives zeros.
"""

from synthattn.engine.native.kernel import attention
from synthattn.engine.native.library import load
from synthattn.engine.native.problem import Problem

__all__ = ["Problem", "attention", "load"]
