"""Models with replaced attention, loaded by the Auto classes. ``test_saved_models_load`` loads every family."""

import importlib
import re
import subprocess
import sys
from typing import Any

import pytest
import torch
import transformers
from conversion_checks import CLOSE, converted
from model_families import inputs, logits, original
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification

import synthattn
from synthattn import auto_classes

pytestmark = pytest.mark.unchecked


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    converted("bert", "random+vanilla").save_pretrained(folder)
    return folder


def test_options_reach_the_model(saved):
    auto = AutoModelForMaskedLM
    model, report = auto.from_pretrained(saved, dtype=torch.bfloat16, output_loading_info=True)
    assert isinstance(model, transformers.BertForMaskedLM)
    assert model.dtype == torch.bfloat16
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    expected = logits(synthattn.from_pretrained(saved, dtype="auto"), inputs("bert"))
    config = transformers.AutoConfig.from_pretrained(saved)
    before = config.to_dict()
    weights = auto.from_pretrained(saved, config=config, attn_implementation="eager", dtype="auto")
    torch.testing.assert_close(logits(weights, inputs("bert")), expected, **CLOSE)
    assert config.to_dict() == before
    shown = auto.from_pretrained(saved, attn_implementation="eager", output_attentions=True)
    assert len(shown(**inputs("bert")).attentions) == 2
    inside = auto.from_pretrained(saved.parent, subfolder=saved.name, dtype="auto")
    torch.testing.assert_close(logits(inside, inputs("bert")), expected, **CLOSE)
    inside = synthattn.from_pretrained(saved.parent, subfolder=saved.name)
    torch.testing.assert_close(logits(inside, inputs("bert")), expected, **CLOSE)


def test_another_head_and_no_head(saved):
    given = inputs("bert")
    inner = AutoModel.from_pretrained(saved, dtype="auto")
    other = AutoModelForSequenceClassification.from_pretrained(saved, num_labels=3, dtype="auto")
    assert type(inner) is transformers.BertModel
    assert other(**given).logits.shape == (3, 3)
    expected = synthattn.from_pretrained(saved).bert(**given).last_hidden_state
    torch.testing.assert_close(inner(**given).last_hidden_state, expected, **CLOSE)
    torch.testing.assert_close(other.bert(**given).last_hidden_state, expected, **CLOSE)


def test_models_without_a_plan_load_as_before(tmp_path):
    model = original("bert")
    model.save_pretrained(tmp_path)
    again = AutoModelForMaskedLM.from_pretrained(pretrained_model_name_or_path=tmp_path, dtype="auto")
    assert type(again) is type(model)
    torch.testing.assert_close(again.state_dict(), model.state_dict(), rtol=0, atol=0)


def test_a_folder_that_lacks_weights(saved, tmp_path):
    model = AutoModelForMaskedLM.from_pretrained(saved)
    state = {name: value for name, value in model.state_dict().items() if "synthesizer" not in name}
    model.save_pretrained(tmp_path, state_dict=state)
    with pytest.raises(ValueError, match="lacks weights, or has them in another shape"):
        AutoModelForMaskedLM.from_pretrained(tmp_path)


def test_a_fresh_process(saved):
    code = """if True:
        import sys, transformers
        auto = transformers.AutoModelForMaskedLM
        try:
            auto.from_pretrained(sys.argv[1])
        except (ValueError, ImportError) as error:
            print(error)
        import synthattn
        print(type(auto.from_pretrained(sys.argv[1])))
    """
    output = subprocess.run([sys.executable, "-c", code, str(saved)], capture_output=True, text=True, check=True).stdout
    assert re.fullmatch(r"[^<]*synthattn\.from_pretrained[^<]*<class '[a-z._]*\.BertForMaskedLM'>\s*", output), output


def test_transformers_may_be_imported_later(tmp_path, monkeypatch):
    (tmp_path / "later.py").write_text(
        "class PreTrainedModel:\n @classmethod\n def from_pretrained(cls, *args, **options):\n  return args\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(auto_classes, "MODULE", "later")
    finders = list(sys.meta_path)
    auto_classes.serve_auto_classes()
    later: Any = importlib.import_module("later")
    monkeypatch.delitem(sys.modules, "later")
    assert sys.meta_path == finders
    assert hasattr(later.PreTrainedModel.from_pretrained, "__wrapped__")
    assert later.PreTrainedModel.from_pretrained("folder", config=None) == ("folder",)
