"""The compiled kernels: C sources and their binding.

The kernels are there where the package was installed with a C compiler at hand, on Linux for processors with AVX2 or
AVX-512. Padding is never multiplied, nor is the future; a row without keys gives zeros.
"""

from synthattn.engine.native.attention import attention
from synthattn.engine.native.library import load
from synthattn.engine.native.problem import Problem

__all__ = ["Problem", "attention", "load"]
