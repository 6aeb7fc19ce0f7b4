"""Cells of the table in docs/convert.md. ``python -m tools.conversions`` runs all of them; here are the quick ones."""

import pytest
from conversion_checks import CHECKS, SPECS, compiling, lora
from model_families import FAMILIES, GENERATING

# jaxtyping's checks do not run in compiled code, and save_pretrained takes most of its time in transformers.
pytestmark = pytest.mark.unchecked

QUICK = ["vanilla is equal", "padding", "gradients"]


@pytest.mark.parametrize("check", QUICK)
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("name", FAMILIES)
def test_quick_cells(name, spec, check):
    assert CHECKS[check](name, spec)


@pytest.mark.parametrize(("name", "spec"), [(n, SPECS[i % 3]) for i, n in enumerate(FAMILIES)])
def test_saved_models_load(name, spec):
    assert CHECKS["save and load"](name, spec) == "yes"


@pytest.mark.parametrize(("name", "spec"), [(n, SPECS[i % 3]) for i, n in enumerate(GENERATING)])
def test_generation_with_caches(name, spec):
    assert CHECKS["generation with caches"](name, spec) == "yes"


@pytest.mark.parametrize(("name", "spec"), [("bert", "random+vanilla"), ("qwen3", "random")])
def test_compiled_models(name, spec):
    """Traced alone: layers/test_compile.py differentiates compiled layers."""
    assert compiling(name, spec, backend="eager") == "yes"


@pytest.mark.parametrize(("name", "spec"), [("bert", "random"), ("llama", "random+vanilla"), ("t5", "random")])
def test_lora(name, spec):
    pytest.importorskip("peft", reason="peft is not installed; pip install -e '.[dev]'")
    assert lora(name, spec) == "yes"
