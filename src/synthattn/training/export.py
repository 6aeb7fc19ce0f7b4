"""Export a trained model as one file for torch or ONNX, after a check that it gives the same outputs."""

import importlib.util
import logging
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from synthattn.messages import shortened, suggestion
from synthattn.saved_file import one_line
from synthattn.training.model import load
from synthattn.training.record import SETTINGS, final_model

Format = Literal["torch", "onnx"]
SUFFIXES = {"torch": ".pt2", "onnx": ".onnx"}
PACKAGES = ("onnx", "onnxscript", "onnxruntime")
LARGEST_BATCH = 65536
TOLERANCE = 1e-4
"""Greatest difference between outputs of the model and of the file, as a share of the largest output."""

Run = Callable[[Sequence[Tensor]], Tensor]


@dataclass(frozen=True)
class Exported:
    """An exported model.

    Args:
        file: its file.
        inputs: names and axes of its inputs, such as ``input_ids (batch, length)``.
        output: name of its output.
        difference: greatest difference from the model's outputs in the check.
        lengths: lengths of input at which both were compared.
    """

    file: Path
    inputs: tuple[str, ...]
    output: str
    difference: float
    lengths: tuple[int, ...]


def export(what: Path, form: str = "torch", output: Path | None = None) -> Exported:
    """Export the model of a run or a folder. The file is kept only if its outputs equal the model's.

    Args:
        what: the folder of a run or of a model.
        form: ``torch`` for a ``.pt2`` file of torch.export, ``onnx`` for ONNX.
        output: the file to write; by default ``model.pt2`` or ``model.onnx`` in the folder.
    """
    if form not in get_args(Format):
        raise ValueError(f"unknown format {form!r}{suggestion(form, get_args(Format))}")
    if not what.is_dir():
        raise ValueError(f"there is no folder {what}; give that of a run or of a model")
    if form == "onnx":
        _check_packages()
    file = what / f"model{SUFFIXES[form]}" if output is None else output
    _check_output(file, SUFFIXES[form])
    model: Any = load(final_model(what) if (what / SETTINGS).is_file() else what)
    graph = Graph(model.float().eval())
    with tempfile.TemporaryDirectory(prefix=".export-", dir=file.parent) as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch about its own functions
        program, fixed = _traced(graph)
        made = Path(folder) / file.name
        _write(program, graph, made, form, fixed)
        lengths, difference = _compare(graph, _reader(made, form), fixed)
        for part in Path(folder).iterdir():  # a large ONNX model has a second file for its weights
            shutil.move(part, file.parent / part.name)
    axes = [f"{name} ({', '.join(graph.axes(name, fixed))})" for name in graph.inputs]
    return Exported(file, tuple(axes), graph.output, difference, tuple(lengths))


class Graph(nn.Module):
    """A model as a function of tensors alone: token ids and masks in, logits or vectors out; nothing is cached.

    Args:
        model: a model of any kind, in evaluation mode.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.longest: int = model.config.max_position_embeddings
        self.decodes = bool(model.config.is_encoder_decoder)
        self.inputs = ("input_ids", "attention_mask", *(("decoder_input_ids",) if self.decodes else ()))
        self.output = "logits" if hasattr(model, model.base_model_prefix) else "last_hidden_state"
        self.options = {"use_cache": False} if self.decodes or model.config.is_decoder else {}

    def forward(self, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor | None = None) -> Tensor:
        more = {} if decoder_input_ids is None else {"decoder_input_ids": decoder_input_ids}
        found = self.model(input_ids=input_ids, attention_mask=attention_mask, return_dict=True, **more, **self.options)
        return found[self.output]

    def axes(self, name: str, fixed: int | None) -> tuple[str, str]:
        """Return the names of the axes of an input; an axis that is always as long is a number."""
        length = "target_length" if name == "decoder_input_ids" else "length"
        return "batch", length if fixed is None else str(fixed)

    def example(self, batch: int, length: int, target_length: int, seed: int) -> tuple[Tensor, ...]:
        """Return inputs with padding at the end of the first example, and before the second one."""
        draw = torch.Generator().manual_seed(seed)
        ids, target = (
            torch.randint(self.model.config.vocab_size, (batch, size), generator=draw)
            for size in (length, target_length)
        )
        mask = torch.ones_like(ids)
        if batch > 1 and length > 1:
            mask[0, (length + 1) // 2 :] = 0
            mask[1, : length // 3] = 0
        return (ids, mask, target) if self.decodes else (ids, mask)

    def read(self, inputs: Sequence[Tensor], outputs: Tensor) -> Tensor:
        """Return those outputs that mean something: none at padding."""
        alike = not self.decodes and outputs.shape[:2] == inputs[1].shape and outputs.dim() == 3
        return outputs[inputs[1] != 0] if alike else outputs


def _check_packages() -> None:
    for name in PACKAGES:
        if importlib.util.find_spec(name) is None:
            raise ValueError(f"export to ONNX needs the package {name}; pip install 'synthattn[onnx]'")


def _check_output(file: Path, suffix: str) -> None:
    if file.suffix != suffix:
        raise ValueError(f"--output must end in {suffix}, got {file}")
    if file.exists():
        raise ValueError(f"{file} exists already; remove it, or choose another file with --output")
    if not file.parent.is_dir():
        raise ValueError(f"there is no folder {file.parent} for {file.name}; make it, or choose another with --output")


def _traced(graph: Graph) -> tuple[ExportedProgram, int | None]:
    """Trace a model, for inputs of any length where it allows that; else return the only length."""
    failed: Exception | None = None
    for fixed in (None, graph.longest) if graph.longest > 2 else (graph.longest,):
        batch = Dim("batch", max=LARGEST_BATCH)
        shapes = []
        for name in graph.inputs:
            axis = graph.axes(name, fixed)[1]
            shapes.append({0: batch} if fixed is not None else {0: batch, 1: Dim(axis, max=graph.longest)})
        # Axes of the same name must be one and the same, as the batch is.
        shapes[1] = shapes[0]
        given = graph.example(2, *((min(5, graph.longest), 3) if fixed is None else (fixed, fixed)), seed=0)
        try:
            with torch.no_grad():
                return torch.export.export(graph, given, dynamic_shapes=tuple(shapes), strict=False), fixed
        except Exception as error:
            failed = error
    assert failed is not None
    raise ValueError(f"this model cannot be exported: {shortened(one_line(failed), 300)}") from failed


def _write(program: ExportedProgram, graph: Graph, file: Path, form: str, fixed: int | None) -> None:
    if form == "torch":
        torch.export.save(program, file)
        return
    # It says on every export that packages are missing which nobody needs here.
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    named = [graph.axes(name, fixed) for name in graph.inputs]
    try:
        made = torch.onnx.export(
            program,
            input_names=list(graph.inputs),
            output_names=[graph.output],
            # The program knows which axes are free; here they get their names.
            dynamic_shapes=tuple({n: axis for n, axis in enumerate(axes) if not axis.isdecimal()} for axes in named),
            dynamo=True,
            verbose=False,
        )
        assert made is not None
        made.save(file)
    except Exception as error:
        raise ValueError(f"this model cannot be exported to ONNX: {shortened(one_line(error), 300)}") from error
    finally:
        log.setLevel(level)


def _reader(file: Path, form: str) -> Run:
    """Return a function that runs an exported file."""
    if form == "torch":
        module = torch.export.load(file).module()
        return lambda inputs: module(*inputs)
    import onnxruntime

    session: Any = onnxruntime.InferenceSession(file)
    names = [one.name for one in session.get_inputs()]

    def run(inputs: Sequence[Tensor]) -> Tensor:
        given = {name: tensor.numpy() for name, tensor in zip(names, inputs, strict=True)}
        return torch.from_numpy(session.run(None, given)[0])

    return run


def _compare(graph: Graph, run: Run, fixed: int | None) -> tuple[list[int], float]:
    """Compare the outputs of a file with the model's at several sizes, and raise a ValueError if they differ."""
    largest, lengths = 0.0, []
    for n, (batch, length) in enumerate(_sizes(graph.longest, fixed)):
        inputs = graph.example(batch, length, max(1, length - 2) if fixed is None else length, seed=n)
        with torch.no_grad():
            expected = graph.read(inputs, graph(*inputs))
            try:
                found = graph.read(inputs, run(inputs))
            except Exception as error:
                raise ValueError(
                    f"the exported model fails at {batch} x {length} tokens: {shortened(one_line(error), 200)}"
                ) from error
        difference = float((found - expected).abs().max())
        if not difference <= TOLERANCE * max(1.0, float(expected.abs().max())):
            raise ValueError(
                f"the exported model differs from the original by {difference:.2g} at {batch} x {length} tokens; "
                "no file was kept"
            )
        largest, lengths = max(largest, difference), [*lengths, length]
    return sorted(set(lengths)), largest


def _sizes(longest: int, fixed: int | None) -> Iterator[tuple[int, int]]:
    """Yield batches and lengths to compare at."""
    if fixed is not None:
        yield from ((1, fixed), (3, fixed))
        return
    for batch, length in ((1, 1), (2, 2), (3, (longest + 2) // 3), (1, max(2, longest - 1)), (2, longest)):
        yield batch, min(length, longest)
