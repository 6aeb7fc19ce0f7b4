"""Vision transformers of timm, and of a stand-in with the same attention where timm is not installed."""

import copy
import importlib.abc
import importlib.machinery
import importlib.util
import io
import sys
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import synthattn

pytestmark = pytest.mark.unchecked

SPECS = ["random", "dense", "random+vanilla"]
N = 17
"""Tokens of an image of 8 x 8 pixels: 16 patches and the class token."""


class Attention(nn.Module):
    """An attention with the interface, the parameters and the results of timm's."""

    def __init__(self, dim: int, num_heads: int, qk_norm: bool = False, gated: bool = False) -> None:
        super().__init__()
        self.num_heads, self.head_dim, self.scale = num_heads, dim // num_heads, (dim // num_heads) ** -0.5
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.q_norm, self.k_norm = (nn.LayerNorm(self.head_dim) if qk_norm else nn.Identity() for _ in range(2))
        self.norm, self.gate = nn.Identity(), nn.Linear(dim, dim) if gated else None
        self.attn_drop, self.proj_drop = nn.Dropout(0.0), nn.Dropout(0.0)

    def forward(self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        q, k, v = (part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(self.q_norm(q), self.k_norm(k), v, attn_mask, is_causal=is_causal)
        y = self.norm(y.transpose(1, 2).flatten(2))
        return self.proj_drop(self.proj(y if self.gate is None else y * self.gate(x).sigmoid()))


Attention.__module__ = "timm.layers.attention"


class StandIn(nn.Module):
    """A vision transformer with the module names of timm's."""

    def __init__(self, qk_norm: bool) -> None:
        super().__init__()
        self.embed, self.cls = nn.Linear(12, 32), nn.Parameter(torch.zeros(1, 1, 32))
        self.blocks = nn.ModuleList(nn.ModuleDict({"attn": Attention(32, 4, qk_norm)}) for _ in range(2))
        self.head = nn.Linear(32, 3)

    def forward(self, images: Tensor) -> Tensor:
        x = self.embed(F.unfold(images, 2, stride=2).mT)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], dim=1)
        for block in self.blocks:
            x = x + block["attn"](x)  # pyright: ignore[reportIndexIssue]
        return self.head(x[:, 0])


class NoTorchvision(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes empty modules in place of torchvision, which timm imports but its models do not need.

    The torchvision that pip finds does not load beside torch without CUDA.
    """

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        wanted = fullname.split(".")[0] == "torchvision"
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True) if wanted else None

    def exec_module(self, module: Any) -> None:
        def made(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            modes = ("NEAREST", "BILINEAR", "BICUBIC", "BOX", "HAMMING", "LANCZOS")  # of InterpolationMode
            return type(name, (nn.Module,), {mode: mode for mode in modes})

        module.__getattr__ = made


def real() -> Any:
    if importlib.util.find_spec("timm") is None:
        pytest.skip("timm is not installed; pip install --no-deps timm pillow")
    finder = NoTorchvision()
    sys.meta_path.append(finder)  # asked last, so that what is installed is taken
    try:
        return importlib.import_module("timm")
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name, module in sys.modules.items() if getattr(module, "__loader__", None) is finder]:
            del sys.modules[name]  # other libraries would take them for the real ones


def build(library: str, qk_norm: bool = False, **more: Any) -> Any:
    torch.manual_seed(1)
    if library == "timm":
        options: dict[str, Any] = {"img_size": 8, "patch_size": 2, "embed_dim": 32, "depth": 2, "num_heads": 4}
        if qk_norm:
            options["qk_norm"] = True
        model = real().create_model("vit_tiny_patch16_224", num_classes=3, **options, **more)
    else:
        model = StandIn(qk_norm)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model.double().eval()


def lively(model: Any) -> Any:
    """Set tables far from zero."""
    for path, parameter in model.named_parameters():
        if ".synthesizer." in path:
            nn.init.normal_(parameter)
    return model


IMAGES = torch.randn(3, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
NAMES = ["blocks.0.attn", "blocks.1.attn"]
each_library = pytest.mark.parametrize("library", ["stand-in", "timm"])


@each_library
@pytest.mark.parametrize("qk_norm", [False, True])
def test_vanilla_changes_nothing_and_restore_puts_back(library, qk_norm):
    model = build(library, qk_norm)
    expected, before = model(IMAGES), {path: value.clone() for path, value in model.state_dict().items()}
    kinds = [type(part) for part in model.modules()]
    assert synthattn.attention_layers(model) == NAMES
    assert synthattn.replace_attention(model, "vanilla") == NAMES
    torch.testing.assert_close(model(IMAGES), expected)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    synthattn.restore(model)
    for spec in SPECS:
        synthattn.replace_attention(model, spec, N, layers=[1])
        assert not torch.allclose(lively(model)(IMAGES), expected, rtol=1e-3)
        synthattn.restore(model)
        assert torch.equal(model(IMAGES), expected)
    assert [type(part) for part in model.modules()] == kinds
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)


@each_library
@pytest.mark.parametrize("spec", SPECS)
def test_a_state_dict_loads_after_the_same_call(library, spec):
    """Every parameter has a gradient, what stays keeps its name, and copies and pickles are whole."""
    model = build(library, qk_norm=True)
    names = set(model.state_dict())
    synthattn.replace_attention(model, spec, N)
    lively(model)(IMAGES).square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert {path for path in model.state_dict() if ".synthesizer." not in path} <= names
    assert model.blocks[0].get_parameter("attn.qkv.weight").shape == (96 if "vanilla" in spec else 32, 32)
    other = build(library, qk_norm=True)
    synthattn.replace_attention(other, spec, N)
    other.load_state_dict(model.state_dict())
    file = io.BytesIO()
    if library == "timm":  # the stand-in's class is not where its name says
        torch.save(model, file)
        file.seek(0)
        assert torch.equal(torch.load(file, weights_only=False)(IMAGES), model(IMAGES))
    for one in (other, copy.deepcopy(model)):
        assert torch.equal(one(IMAGES), model(IMAGES))
    with pytest.raises(RuntimeError, match="Unexpected key"):
        build(library, qk_norm=True).load_state_dict(model.state_dict())


@each_library
def test_a_layer_computes_the_equations(library):
    model = build(library)
    synthattn.replace_attention(model, "random", N)
    layer = lively(model).get_submodule(NAMES[1])
    x = torch.randn(2, 11, 32, dtype=torch.float64)
    values = (x @ layer.qkv.weight.T + layer.qkv.bias).unflatten(-1, (4, 8)).transpose(1, 2)
    future = torch.ones(11, 11, dtype=torch.bool).triu(1)
    keep = torch.ones(2, 1, 1, 11, dtype=torch.bool)
    keep[1, ..., 8:] = False
    bias = torch.randn(2, 4, 11, 11, dtype=torch.float64)
    for given, hidden, added in [
        ({}, torch.zeros(11, 11, dtype=torch.bool), 0),
        ({"is_causal": True}, future, 0),
        ({"attn_mask": ~future}, future, 0),
        ({"attn_mask": keep}, ~keep, 0),
        ({"attn_mask": bias}, torch.zeros(11, 11, dtype=torch.bool), bias),
    ]:
        scores = (layer.synthesizer.matrix[:, :11, :11] + added).expand(2, -1, -1, -1)
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        expected = (weights @ values).transpose(1, 2).flatten(2) @ layer.proj.weight.T + layer.proj.bias
        torch.testing.assert_close(layer(x, **given), expected)


@each_library
def test_masks_and_gates_with_the_dot_product(library):
    kind = real().layers.Attention if library == "timm" else Attention
    torch.manual_seed(0)
    model = nn.ModuleDict({"a": kind(32, num_heads=4, gated=True)}).double()
    x, keep = torch.randn(2, 11, 32, dtype=torch.float64), torch.rand(2, 1, 11, 11) > 0.3
    for given in ({}, {"is_causal": True}, {"attn_mask": keep}, {"attn_mask": torch.randn(11, 11).double()}):
        expected = model["a"](x, **given)
        synthattn.replace_attention(model, "vanilla")
        torch.testing.assert_close(model["a"](x, **given), expected)
        synthattn.restore(model)
    synthattn.replace_attention(model, "vanilla")
    with pytest.raises(ValueError, match="give attn_mask or is_causal=True, not both"):
        model["a"](x, keep, is_causal=True)


@each_library
def test_compiled(library):
    model = build(library)
    synthattn.replace_attention(model, "random", N)
    lively(model)
    torch._dynamo.reset()
    compiled: Any = torch.compile(copy.deepcopy(model), backend="aot_eager")
    torch.testing.assert_close(compiled(IMAGES), model(IMAGES), rtol=1e-9, atol=1e-10)


@each_library
def test_bf16_and_adapters(library):
    peft = pytest.importorskip("peft", reason="peft is not installed; pip install -e '.[dev]'")
    model = build(library)
    synthattn.replace_attention(model, "random+vanilla", N)
    expected = lively(model)(IMAGES)
    half = copy.deepcopy(model).bfloat16()(IMAGES.bfloat16())
    assert (half - expected).abs().mean() < 0.1 * expected.abs().mean()
    adapted = peft.inject_adapter_in_model(peft.LoraConfig(r=2, target_modules=["qkv", "proj"]), model).double()
    torch.testing.assert_close(adapted(IMAGES), expected)
    adapted(IMAGES).sum().backward()
    tuned = {path for path, value in adapted.named_parameters() if value.grad is not None}
    assert any("qkv.lora_A" in path for path in tuned)
    other = peft.inject_adapter_in_model(peft.LoraConfig(target_modules=["qkv"]), build(library))
    with pytest.raises(ValueError, match="qkv is a Linear; replace attention before adapters"):
        synthattn.replace_attention(other, "random", N)


@each_library
def test_mistakes_and_old_optimizers_give_one_line(library):
    model = build(library)
    old = torch.optim.SGD(model.parameters(), lr=0.1)
    synthattn.replace_attention(model, "random", N - 1)
    with pytest.raises(ValueError, match=r"input has 17 positions, blocks\.0\.attn was converted with max_length=16"):
        model(IMAGES)
    with pytest.raises(ValueError, match=r"blocks\.0\.attn.* is replaced already; call restore\(model\) first"):
        synthattn.replace_attention(model, "dense", N)
    with pytest.raises(ValueError, match="made before replace_attention: it holds 4 parameters"):
        old.step()
    model = build(library)
    model.patch_drop = type("PatchDropout", (nn.Identity,), {})()
    with pytest.raises(ValueError, match=r"cannot replace .*patch_drop_rate leaves out tokens.*nothing was changed"):
        synthattn.replace_attention(model, "random", N)
    model = build(library)
    forward = Attention.forward
    other = type("Attention", (nn.Module,), {"forward": lambda self, x: x, "__module__": Attention.__module__})
    model.blocks[0].attn = other()
    with pytest.raises(ValueError, match="its forward takes x, which is that of another release of timm"):
        synthattn.replace_attention(nn.ModuleList([model.blocks[0].attn]), "random", N)
    assert Attention.forward is forward


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("eva02_tiny_patch14_224", "EvaAttention"),
        ("vit_small_patch16_rope_224", "AttentionRope"),
        ("swin_tiny_patch4_window7_224", "WindowAttention"),
        ("beit_base_patch16_224", "Attention"),
    ],
)
def test_relatives_in_timm_are_refused_by_name(name, said):
    model = real().create_model(name)
    with pytest.raises(ValueError, match=rf"has no attention of torch or timm to replace; its own attention .*{said}"):
        synthattn.replace_attention(model, "random", 197)


def test_gradient_checkpointing_in_timm():
    grads = []
    for checkpointing in (False, True):
        model = build("timm").train()
        torch.manual_seed(3)
        synthattn.replace_attention(model, "random+vanilla", N)
        model.set_grad_checkpointing(checkpointing)
        model(IMAGES).square().sum().backward()
        grads.append({path: value.grad for path, value in model.named_parameters()})
    torch.testing.assert_close(*grads)
