"""The compiled kernels and the structures of their arguments, which are those of ``attention.c``."""

import ctypes
import functools
import hashlib
import os
import platform
import warnings
from ctypes import POINTER, Structure, c_char_p, c_double, c_float, c_int64, c_void_p
from pathlib import Path

import torch
from torch import Tensor

FOLDER = Path(__file__).parent


class Rows(Structure):
    """Rows of floats by example, head and place; an axis that is shared has stride 0."""

    _fields_ = (
        ("data", c_void_p),
        ("batch", c_int64),
        ("head", c_int64),
        ("row", c_int64),
        ("width", c_int64),
        ("split", c_int64),
    )

    @classmethod
    def of(cls, tensor: Tensor | None) -> "Rows":
        """Describe a tensor (split, batch, heads, place, width), or one without the first axes.

        An axis of size 1 is shared.
        """
        if tensor is None:
            return cls()
        strides = [0 if size == 1 else stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
        split, batch, head, row, _ = [0] * (5 - len(strides)) + strides
        return cls(tensor.data_ptr(), batch, head, row, tensor.shape[-1], split)

    @classmethod
    def of_diagonals(cls, tensor: Tensor | None, q: int) -> "Rows":
        """Describe (split, heads, diagonals) or (heads, diagonals): each row starts one place before the last one.

        The first diagonal is that of the last query and the first key.
        """
        if tensor is None:
            return cls()
        split, head, _ = [0] * (3 - tensor.dim()) + list(tensor.stride())
        return cls(tensor.data_ptr() + (q - 1) * tensor.element_size(), 0, head, -1, tensor.shape[-1], split)


class Problem(Structure):
    _fields_ = (
        ("batch", c_int64),
        ("heads", c_int64),
        ("q", c_int64),
        ("k", c_int64),
        ("products", c_int64),
        ("causal", c_int64),
        ("threads", c_int64),
        ("query", POINTER(Rows)),
        ("key", POINTER(Rows)),
        ("scale", POINTER(c_float)),
        ("value", Rows),
        ("bias", Rows),
        ("diagonals", Rows),
        ("weight", c_void_p),
        ("first", c_void_p),
        ("last", c_void_p),
        ("workspace", c_void_p),
        ("factor", c_double),
        ("limit", c_int64),
        ("seed", c_int64),
    )


class Matrix(Structure):
    """Matrices of equal strides in floats, one of which is 1."""

    _fields_ = (("data", c_void_p), ("batch", c_int64), ("row", c_int64), ("column", c_int64))


class Gemm(Structure):
    """The arguments of ``gemm.c``."""

    _fields_ = (
        ("a", Matrix),
        ("b", Matrix),
        ("c", Matrix),
        ("bias", c_void_p),
        ("workspace", c_void_p),
        ("bias_row", c_int64),
        ("bias_column", c_int64),
        ("batch", c_int64),
        ("rows", c_int64),
        ("columns", c_int64),
        ("depth", c_int64),
        ("threads", c_int64),
        ("lesser", c_int64),
        ("greater", c_int64),
    )


class Forward(Structure):
    _fields_ = (("result", Rows), ("peaks", c_void_p), ("kept", c_void_p), ("kept_peaks", c_void_p))


class Backward(Structure):
    _fields_ = (
        ("above", Rows),
        ("result", Rows),
        ("peaks", c_void_p),
        ("kept", c_void_p),
        ("kept_peaks", c_void_p),
        ("splits", c_int64),
        ("to_query", POINTER(Rows)),
        ("to_key", POINTER(Rows)),
        ("to_value", Rows),
        ("to_bias", Rows),
        ("to_diagonals", Rows),
        ("to_weight", c_void_p),
    )


@functools.cache
def load() -> ctypes.CDLL | None:
    """Load the kernels for this processor.

    Returns None where they were not compiled or are not wanted (``SYNTHATTN_NATIVE=0``). ``SYNTHATTN_KERNELS`` names
    another folder to load them from, such as that of ``make sanitize``.
    """
    if os.environ.get("SYNTHATTN_NATIVE") == "0":
        return None
    folder = Path(os.environ.get("SYNTHATTN_KERNELS") or FOLDER)
    path = folder / file_name()
    try:
        found, openmp = ctypes.CDLL(str(path)), openmp_functions()
        source = c_char_p.in_dll(found, "synthattn_source").value
    except (OSError, ValueError, AttributeError):  # not there, or something else, or torch has no OpenMP
        return None
    if source != digest_of(FOLDER).encode():
        return _refuse(f"{path.name} was compiled from other sources")
    if _exported(found, "synthattn_layout", c_int64.in_dll(found, "synthattn_layout_size").value) != layout():
        return _refuse(f"{path.name} was compiled with other structures")
    if c_int64.in_dll(found, "synthattn_gemm_size").value != ctypes.sizeof(Gemm):
        return _refuse(f"{path.name} was compiled with other structures")
    found.synthattn_use_openmp.restype, found.synthattn_use_openmp.argtypes = None, [c_void_p] * 3
    found.synthattn_use_openmp(*openmp)
    found.synthattn_workspace.restype = c_int64
    found.synthattn_digest_size.restype, found.synthattn_digest_size.argtypes = c_int64, ()
    found.synthattn_digest.restype, found.synthattn_digest.argtypes = None, (c_void_p, c_int64, c_int64, c_void_p)
    found.synthattn_workspace.argtypes = (POINTER(Problem), c_int64)
    found.synthattn_forward.restype = found.synthattn_backward.restype = None
    found.synthattn_forward.argtypes = (POINTER(Problem), POINTER(Forward))
    found.synthattn_backward.argtypes = (POINTER(Problem), POINTER(Backward))
    found.synthattn_gemm.restype, found.synthattn_gemm.argtypes = None, (POINTER(Gemm),)
    found.synthattn_gemm_workspace.restype, found.synthattn_gemm_workspace.argtypes = c_int64, ()
    found.synthattn_thin.restype = found.synthattn_rms_norm.restype = None
    found.synthattn_thin.argtypes = (*[c_void_p] * 4, *[c_int64] * 4)
    found.synthattn_rms_norm.argtypes = (*[c_void_p] * 3, c_float, *[c_int64] * 3)
    return found


def file_name() -> str:
    """Name the library for this processor; there may be none of this name."""
    is_arm = platform.machine() in ("aarch64", "arm64")
    return f"kernels.{'neon' if is_arm else torch.backends.cpu.get_cpu_capability().lower()}.so"


def openmp_functions() -> list[c_void_p]:
    """Find the functions for threads in the OpenMP that torch has loaded, whatever its file is called.

    Raises AttributeError where torch uses no OpenMP.
    """
    torch_and_its_libraries = ctypes.CDLL(torch._C.__file__)
    names = ("GOMP_parallel", "omp_get_num_threads", "omp_get_thread_num")
    return [ctypes.cast(getattr(torch_and_its_libraries, name), c_void_p) for name in names]


def loaded() -> ctypes.CDLL:
    """Return the kernels, for code that cannot do without them."""
    kernels = load()
    if kernels is None:
        names = [name for name in ("SYNTHATTN_NATIVE", "SYNTHATTN_KERNELS") if name in os.environ]
        chosen = "".join(f", with {name}={os.environ[name]}" for name in names)
        raise RuntimeError(f"no compiled kernels{chosen}; install synthattn again where there is gcc or clang")
    return kernels


@functools.cache
def block_shape(kernels: ctypes.CDLL) -> tuple[int, int, int]:
    """The rows and keys of a block of logits, and the floats from one of its rows to the next."""
    rows, keys, stride = _exported(kernels, "synthattn_block", 3)
    return rows, keys, stride


def layout() -> list[int]:
    """The size of each structure and the offsets of its fields, as the kernels export theirs."""
    found = []
    for structure in (Rows, Problem, Forward, Backward):
        found += [ctypes.sizeof(structure), *(getattr(structure, field[0]).offset for field in structure._fields_)]
    return found


def _exported(kernels: ctypes.CDLL, name: str, size: int) -> list[int]:
    return list((c_int64 * size).in_dll(kernels, name))


def _refuse(reason: str) -> None:
    warnings.warn(f"{reason} and is not used; install synthattn again", stacklevel=4)


def digest_of(folder: Path) -> str:
    """The digest of all sources that are compiled."""
    sources = sorted(folder.glob("*.[ch]"))
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
