"""The compiled kernels. Their structures and functions are declared in C alone, and read from the sources."""

import ctypes
import functools
import hashlib
import os
import platform
import re
import warnings
from ctypes import POINTER, Structure, c_char_p, c_double, c_float, c_int64, c_void_p
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

FOLDER = Path(__file__).parent
_FLOAT, _STRIDED = torch.float32, torch.strided
_TYPES: dict[str, Any] = {"void": None, "size": c_int64, "float": c_float, "double": c_double}
_SOURCES = "".join(path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.[ch]")))
_DECLARATIONS = re.sub(r"/\*.*?\*/", "", _SOURCES, flags=re.DOTALL)


def _structure(name: str) -> type[Structure]:
    """Declare a structure as the sources do. Without sources it has no fields, and there are no kernels."""
    found = re.search(rf"typedef struct \{{([^}}]*)\}} {name};", _DECLARATIONS)
    fields: list[tuple[str, Any]] = []
    for declaration in found[1].split(";")[:-1] if found else ():
        kind, *names = re.findall(r"\*?\w+", declaration.replace("const ", ""))
        fields += [(field.removeprefix("*"), _type(kind, field.startswith("*"))) for field in names]
    _TYPES[name] = type(name, (Structure,), {"_fields_": fields})
    return _TYPES[name]


def _type(kind: str, is_pointer: bool) -> Any:
    """Return the type of a field or an argument; a pointer to anything but a structure is an address."""
    if not is_pointer:
        return _TYPES[kind]
    found = _TYPES.get(kind)
    return POINTER(found) if isinstance(found, type) and issubclass(found, Structure) else c_void_p


Rows, Problem, Forward, Backward = map(_structure, ("Rows", "Problem", "Forward", "Backward"))
Matrix, Gemm = map(_structure, ("Matrix", "Gemm"))


def are_plain_floats(tensor: Tensor) -> bool:
    """Return True if the tensor is float32 memory of the CPU that can be read as it lies, row by row."""
    return (
        tensor.dtype is _FLOAT
        and tensor.is_cpu
        and tensor.layout is _STRIDED
        and not tensor.is_neg()  # its memory holds the numbers with the other sign
        and tensor.data_ptr() != 0  # it is 0 where the tensor is empty, or its storage was resized to nothing
    )


def are_whole_floats(tensor: Tensor) -> bool:
    """Return True if the tensor is float32 memory of the CPU without gaps. Asked some hundred times for each token."""
    return are_plain_floats(tensor) and tensor.is_contiguous()


def rows_of(tensor: Tensor | None) -> Structure:
    """Describe a tensor (split, batch, heads, place, width), or one without the first axes; size 1 means shared."""
    if tensor is None:
        return Rows()
    strides = [0 if size == 1 else stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    split, batch, head, row, _ = [0] * (5 - len(strides)) + strides
    return Rows(data=tensor.data_ptr(), batch=batch, head=head, row=row, width=tensor.shape[-1], split=split)


def diagonals_of(tensor: Tensor | None, q: int) -> Structure:
    """Describe (split, heads, diagonals) or (heads, diagonals): each row starts one place before the last one.

    The first diagonal is that of the last query and the first key.
    """
    if tensor is None:
        return Rows()
    split, head, _ = [0] * (3 - tensor.dim()) + list(tensor.stride())
    first = tensor.data_ptr() + (q - 1) * tensor.element_size()
    return Rows(data=first, head=head, row=-1, width=tensor.shape[-1], split=split)


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
    sources = b"".join(file.read_bytes() for file in sorted(FOLDER.glob("*.[ch]")))
    if source != hashlib.sha256(sources).hexdigest().encode():
        warnings.warn(
            f"{path.name} was compiled from other sources and is not used; install synthattn again", stacklevel=2
        )
        return None
    declared = re.findall(r"^(void|size) (synthattn_\w+)\(([^)]*)\)", _DECLARATIONS, flags=re.MULTILINE)
    for result, name, arguments in declared:
        function = getattr(found, name)
        kinds = re.findall(r"(\w+) (\*?)\w+(?:,|$)", arguments)
        function.restype, function.argtypes = _TYPES[result], [_type(kind, bool(star)) for kind, star in kinds]
    found.synthattn_use_openmp(*openmp)
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
    """Return the rows and keys of a block of logits, and the floats from one of its rows to the next."""
    rows, keys, stride = (c_int64 * 3).in_dll(kernels, "synthattn_block")
    return rows, keys, stride


def digest(table: Tensor) -> Tensor | None:
    """Return a few numbers that change with a table on the CPU, from one look at its bits.

    Returns None where the table is not one piece of memory, or there is no kernel.
    """
    kernel, size = load(), table.numel() * table.element_size()
    if kernel is None or size % 4 or table.layout != torch.strided or not table.is_cpu or not table.is_contiguous():
        return None
    if table.is_neg() or table.data_ptr() == 0:
        return None
    sums = torch.empty(kernel.synthattn_digest_size(), dtype=torch.int32, device="cpu")  # whatever the default is
    kernel.synthattn_digest(table.data_ptr(), size // 4, torch.get_num_threads(), sums.data_ptr())
    return sums
