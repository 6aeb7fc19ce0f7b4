"""Exported models give the outputs of the original, or no file is kept."""

import pytest
import torch

from model_helpers import make
from synthattn.models import (
    SynthesizerForCausalLM,
    SynthesizerForConditionalGeneration,
    SynthesizerForSequenceClassification,
)
from synthattn.training import export as module
from synthattn.training.export import export

pytestmark = pytest.mark.unchecked


@pytest.fixture
def save(tmp_path):
    def saved(kind, attention="random"):
        make(kind, attention, encoder_layers=1, decoder_layers=1).float().save_pretrained(tmp_path / "model")
        return tmp_path / "model"

    return saved


@pytest.mark.parametrize(
    ("kind", "inputs"),
    [
        (SynthesizerForCausalLM, ("input_ids (batch, length)", "attention_mask (batch, length)")),
        (
            SynthesizerForConditionalGeneration,
            (
                "input_ids (batch, length)",
                "attention_mask (batch, length)",
                "decoder_input_ids (batch, target_length)",
            ),
        ),
    ],
)
def test_torch(kind, inputs, save):
    folder = save(kind)
    found = export(folder)
    assert (found.inputs, found.output) == (inputs, "logits")
    assert found.file == folder / "model.pt2"
    assert [path.name for path in folder.glob(".export-*")] == []
    module = torch.export.load(found.file).module()
    model = kind.from_pretrained(folder).eval()
    ids = torch.tensor([[5, 4, 3, 2, 6, 5, 7]])
    given = (ids, torch.ones_like(ids), ids[:, :4])[: len(inputs)]
    expected = model(*given[:2], **({"decoder_input_ids": given[2]} if len(given) > 2 else {})).logits
    torch.testing.assert_close(module(*given), expected, rtol=1e-4, atol=1e-5)


def test_onnx(save):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    folder = save(SynthesizerForSequenceClassification)
    found = export(folder, "onnx")
    session = onnxruntime.InferenceSession(found.file)
    assert [(one.name, one.shape) for one in session.get_inputs()] == [
        ("input_ids", ["batch", "length"]),
        ("attention_mask", ["batch", "length"]),
    ]
    ids = torch.tensor([[5, 4, 3], [2, 6, 0]])
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    (logits,) = session.run(["logits"], {"input_ids": ids.numpy(), "attention_mask": mask.numpy()})
    expected = SynthesizerForSequenceClassification.from_pretrained(folder).eval()(ids, mask).logits
    torch.testing.assert_close(torch.from_numpy(logits), expected, rtol=1e-4, atol=1e-5)


def test_a_file_with_other_outputs_is_not_kept(save, monkeypatch):
    folder = save(SynthesizerForSequenceClassification)
    graphs = []
    monkeypatch.setattr(module, "_traced", lambda graph: (graphs.append(graph), None))
    monkeypatch.setattr(module, "_write", lambda program, graph, file, form, fixed: file.write_text("a program"))
    monkeypatch.setattr(module, "_reader", lambda file, form: lambda inputs: graphs[0](*inputs) + 1)
    with pytest.raises(ValueError, match=r"the exported model differs from the original by 1 at 1 x 1 tokens; no file"):
        export(folder)
    assert not (folder / "model.pt2").exists()


def test_mistakes(save, tmp_path, monkeypatch):
    folder = save(SynthesizerForSequenceClassification)
    (folder / "there.pt2").write_text("")
    with pytest.raises(ValueError, match=r"there\.pt2 exists already; remove it, or choose another file"):
        export(folder, output=folder / "there.pt2")
    with pytest.raises(ValueError, match=r"there is no folder \S+none for model\.pt2"):
        export(folder, output=tmp_path / "none" / "model.pt2")
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None if name == "onnxscript" else name)
    with pytest.raises(ValueError, match=r"needs the package onnxscript; pip install 'synthattn\[onnx\]'$"):
        export(folder, "onnx")
