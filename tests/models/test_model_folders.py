"""Folders of saved models that are cut off, damaged or foreign are refused in one line; none is scored at random."""

import json
import os
import pickle
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tools.faults import checkpoints, configurations
from tools.faults.configurations import KINDS
from tools.faults.in_process import call

from synthattn.compare import results
from synthattn.compare.comparison import load_comparison
from synthattn.data.holdout import HeldOut
from synthattn.data.open import open_source
from synthattn.data.tokenizers import train_tokenizer
from synthattn.models import presets, size
from synthattn.models.configuration import SynthesizerConfig
from synthattn.models.describe import MODELS, describe
from synthattn.saved_file import read_json, read_yaml
from synthattn.training import record
from synthattn.training.model import load

pytestmark = pytest.mark.unchecked

TEXTS = ["the dog sees", "old red house", "a new car", "the tree", "blue cat", "small house has the dog"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with data for three tasks and a small model for each, not trained."""
    folder = tmp_path_factory.mktemp("place")
    for split in ("train", "valid", "test"):
        rows = [f"{text}\t{'animal' if 'dog' in text else 'thing'}" for text in TEXTS]
        files = {
            f"translation/{split}.en": TEXTS,
            f"translation/{split}.de": [text.upper() for text in TEXTS],
            f"language-modeling/{split}.txt": TEXTS,
            f"classification/{split}.tsv": ["text\tlabel", *rows],
        }
        for name, lines in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text("".join(f"{line}\n" for line in lines))
    tokenizer = train_tokenizer("words", TEXTS, 130)
    for kind in MODELS:
        config = presets.tiny(vocab_size=len(tokenizer), d_model=8, num_heads=2, d_ff=12, max_position_embeddings=16)
        torch.manual_seed(0)
        MODELS[kind](config).save_pretrained(folder / kind)
        tokenizer.save_pretrained(folder / kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SYNTHATTN_CACHE", str(folder / "cache"))
        yield folder


@pytest.fixture
def folder(place, tmp_path, request) -> Path:
    """A copy of the saved encoder-decoder, to damage."""
    return Path(shutil.copytree(place / "seq2seq", tmp_path / "model"))


def refused(place: Path, folder: Path, verb: str, kind: str = "seq2seq") -> str:
    """The line that a command ends with."""
    task = KINDS.get(kind, "translation")
    data = ["--task", task, "--data", place / task]
    options = {
        "generate": [folder],
        "evaluate": [folder, *data, "--quiet"],
        "train": ["--start", folder, *data, "--steps", 1, "--output", folder.parent / "run", "--quiet"],
        "describe": [folder],
    }
    said = call(verb, *options[verb], stdin="the dog\n")
    assert (said.code, said.out, said.error) == (2, "", None)
    assert said.err.count("\n") == 1
    assert said.err.startswith("synthattn: ")
    return said.err


def edit(folder: Path, **fields: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def edit_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> Path:
    file = folder / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})
    return file


NORM = "model.encoder.norm.weight"


@pytest.mark.parametrize("verb", ["generate", "evaluate", "train"])
def test_missing_tensors_are_named(place, folder, verb):
    first = "model.decoder.blocks.0.attention.value.weight"
    file = edit_weights(folder, lambda tensors: (tensors.pop(NORM), tensors.pop(first)))
    total = len(load(place / "seq2seq").state_dict())
    said = refused(place, folder, verb)
    assert f"{file} lacks {NORM}, {first} (2 of {total} tensors); copy the folder again" in said


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_without_any_tensor_that_fits(place, tmp_path, kind):
    folder = Path(shutil.copytree(place / kind, tmp_path / "model"))
    file = edit_weights(folder, lambda tensors: (tensors.clear(), tensors.update(x=torch.zeros(3))))
    assert f"{file} lacks " in refused(place, folder, "generate", kind)


def test_tensors_that_the_model_does_not_have(place, folder):
    edit_weights(folder, lambda tensors: tensors.update(extra=torch.zeros(3)))
    message = "model.safetensors has extra, which a SynthesizerForConditionalGeneration lacks"
    assert message in refused(place, folder, "evaluate")


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.int8])
def test_tensors_of_another_dtype(place, folder, dtype):
    edit_weights(folder, lambda tensors: tensors.update({NORM: tensors[NORM].to(dtype)}))
    said = refused(place, folder, "generate")
    assert f"{NORM} has dtype " in said
    assert "config.json and the other tensors say float32; save the model anew with one dtype" in said


def test_a_model_in_half_precision_is_one_dtype(place, folder):
    model: Any = load(folder)
    model.to(torch.bfloat16).save_pretrained(folder)
    assert load(folder).dtype == torch.bfloat16
    edit(folder, dtype="float32")
    assert "has dtype BF16, config.json and the other tensors say float32" in refused(place, folder, "generate")


def test_shapes_unlike_the_configuration(place, folder):
    edit(folder, d_ff=24)
    assert "feed_forward" in (said := refused(place, folder, "generate"))
    assert "has shape (12, 8), config.json asks for (24, 8); copy the folder again" in said


def test_an_output_matrix_that_is_not_the_embedding_it_should_be(place, folder):
    name = "lm_head.weight"
    edit_weights(folder, lambda tensors: tensors.update({name: tensors["model.embedding.weight"].clone()}))
    load(folder)
    edit_weights(folder, lambda tensors: tensors.update({name: tensors[name] + 1}))
    assert "lm_head.weight is not model.embedding.weight" in refused(place, folder, "generate")
    edit(folder, tie_word_embeddings=False)
    model: Any = load(folder)
    assert not model.get_output_embeddings().weight.equal(model.get_input_embeddings().weight)


def sharded(place: Path, folder: Path) -> Path:
    shutil.rmtree(folder)
    load(place / "seq2seq").save_pretrained(folder, max_shard_size="5KB")
    shutil.copy(place / "seq2seq" / "tokenizer.json", folder)
    shutil.copy(place / "seq2seq" / "tokenizer_config.json", folder)
    return folder / "model.safetensors.index.json"


def test_a_model_in_several_files(place, folder):
    index = sharded(place, folder)
    whole, parts = load(place / "seq2seq").state_dict(), load(folder).state_dict()
    assert len(list(folder.glob("*.safetensors"))) > 2
    assert all(parts[name].equal(tensor) for name, tensor in whole.items())
    saved = json.loads(index.read_text())
    name = sorted(saved["weight_map"])[0]
    wrong = {
        "3": "must have a weight_map from tensors to files",
        '{"weight_map": {"a": 3}}': "must have a weight_map from tensors to files",
        '{"weight_map": {"a": "../../x.safetensors"}}': "names a file '../../x.safetensors', which is not in",
        json.dumps({"weight_map": saved["weight_map"] | {name: "model-9.safetensors"}}): "names a file 'model-9.safet",
        json.dumps(
            {"weight_map": saved["weight_map"] | {"zzz": saved["weight_map"][name]}}
        ): "wrong about the file of zzz",
        json.dumps({"weight_map": {k: v for k, v in saved["weight_map"].items() if k != name}}): "wrong about the file",
    }
    for text, message in wrong.items():
        index.write_text(text)
        assert message in refused(place, folder, "generate")


class Evil:
    """Its pickle makes a folder when it is opened."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.mark),))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors"])
@pytest.mark.parametrize("verb", ["generate", "train"])
def test_pickles_are_never_opened(place, folder, tmp_path, name, verb):
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(pickle.dumps(Evil(tmp_path / "mark")))
    said = refused(place, folder, verb)
    if name.endswith("bin"):
        assert "only pytorch_model.bin, which may contain code and is not read; save the model as safetensors" in said
    else:
        assert f"{folder / name} is cut off or damaged: " in said
    assert not (tmp_path / "mark").exists()


def more_tokens(folder: Path) -> None:
    tokenizer = train_tokenizer("words", [*TEXTS, "many other words"], 140)
    tokenizer.save_pretrained(folder)


@pytest.mark.parametrize("verb", ["generate", "evaluate", "train"])
def test_a_tokenizer_with_more_tokens_than_the_model(place, folder, verb):
    more_tokens(folder)
    said = refused(place, folder, verb)
    assert f"{folder / 'tokenizer.json'} has " in said
    assert "it is the tokenizer of another model; copy the folder again" in said


@pytest.mark.parametrize("text", ["{}", "[]", "", "{", '{"model": 3}', None])
def test_a_tokenizer_that_is_none(place, folder, text):
    file = folder / "tokenizer.json"
    file.unlink() if text is None else file.write_text(text)
    assert "tokenizer.json" in refused(place, folder, "generate")


@pytest.mark.parametrize(
    "text", ["[]", '{"__class__": "os"}', '{"auto_map": {"AutoTokenizer": ["evil.T", null]}, "eos_token": 3}']
)
def test_a_configuration_of_a_tokenizer_that_is_none(place, folder, text):
    (folder / "tokenizer_config.json").write_text(text)
    (folder / "evil.py").write_text("raise SystemExit('code was run')")
    assert "token" in refused(place, folder, "generate")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "must hold an object, got a list"),
        ('{"decoder_start_token_id": -1}', "decoder_start_token_id must be a token below "),
        ('{"eos_token_id": [1, 9999]}', "eos_token_id must be a token below "),
        (
            "{}",
            "lacks decoder_start_token_id, eos_token_id, pad_token_id, which config.json has; write them into it",
        ),
        ('{"no_repeat_ngram_size": "x"}', "no_repeat_ngram_size must be a number, got 'x'"),
        ('{"eos_token_id": 1, "pad_token_id": 0, "decoder_start_token_id": 0, "num_return_sequences": 3}', "must be 1"),
        ('{"eos_token_id": 1, "pad_token_id": 0, "decoder_start_token_id": 0, "watermarking_config": 3}', "delete it"),
    ],
)
def test_a_damaged_configuration_of_generation(place, folder, text, message):
    (folder / "generation_config.json").write_text(text)
    assert message in refused(place, folder, "generate")


@pytest.mark.parametrize("field", ["output_attentions", "output_hidden_states", "return_dict_in_generate"])
def test_fields_that_ask_for_more_than_tokens_change_no_answer(place, folder, field):
    expected = call("generate", folder, stdin="the dog\n")
    assert expected.code == 0
    file = folder / "generation_config.json"
    if field == "return_dict_in_generate":
        file.write_text(json.dumps(json.loads(file.read_text()) | {field: True}))
    else:
        file.unlink()
        edit(folder, **{field: True, "return_dict": False})
    assert call("generate", folder, stdin="the dog\n").out == expected.out


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"id2label": ["a", "b"]}, "id2label must name the classes 0, 1, 2, ..."),
        ({"id2label": {"0": "a", "2": "b"}}, "id2label must name the classes 0, 1, 2, ..."),
        ({"num_labels": "x"}, "num_labels must be a whole number from 0 to 1,000,000, got 'x'"),
        ({"num_labels": 10**9}, "num_labels must be a whole number from 0 to 1,000,000, got 1000000000"),
        ({"decoder_start_token_id": None}, "decoder_start_token_id is null; write the token that texts start with"),
        ({"decoder_start_token_id": -1}, "decoder_start_token_id must be at least 0 and below vocab_size="),
        ({"eos_token_id": [1, 10**6]}, "eos_token_id must be at least 0 and below vocab_size="),
        ({"norm_eps": float("nan")}, "norm_eps must be a finite number, got nan"),
        ({"ponder_weight": float("inf")}, "ponder_weight must be a finite number, got inf"),
        ({"encoder_layers": 10**9}, "numbers, which take "),
        ({"d_model": 2**31}, "d_model must be at most 2,147,483,647, got 2147483648"),
        ({"d_model": 10**6}, "GB of memory; make it smaller"),
        ({"vocab_size": 2**31 - 1, "d_model": 2**30}, "GB of memory; make it smaller"),
        ({"d_model": 2**31 - 2, "d_ff": 2**31 - 1}, "the sizes of this configuration are too large for a tensor"),
        ({"encoder_layers": -1, "decoder_layers": -1}, "encoder_layers must be at least 0, got -1"),
        ({"dtype": "foo"}, "dtype must be one of float16, bfloat16, float32, float64, got 'foo'"),
        ({"architectures": -1}, "architectures must be a list or null, got -1"),
        ({"architectures": ["T5Model"]}, "unknown architecture 'T5Model'"),
        ({"d_modle": 3}, "has a field 'd_modle', which a configuration lacks; did you mean d_model?"),
        ({"transformers_weights": "other.bin"}, "has a field 'transformers_weights'"),
    ],
)
def test_configurations_that_are_refused(place, folder, fields, message):
    edit(folder, **fields)
    assert message in refused(place, folder, "generate")


def test_a_configuration_that_lacks_a_field(place, folder):
    file = folder / "config.json"
    saved = json.loads(file.read_text())
    del saved["num_heads"]
    file.write_text(json.dumps(saved))
    message = f"{file} lacks num_heads; copy it again, or write what the model was made with"
    assert message in refused(place, folder, "describe")


def test_a_configuration_that_is_nested_too_deeply(place, folder):
    (folder / "config.json").write_text("[" * 100_000)
    assert "config.json nests more than 100 lists or objects" in refused(place, folder, "describe")


@pytest.mark.parametrize("kind", ["masked-lm", "bare"])
def test_models_that_answer_nothing(place, kind):
    said = refused(place, place / kind, "generate", kind)
    assert f"{place / kind} holds a {MODELS[kind].__name__}, which answers nothing" in said


def test_large_models_are_counted_but_not_made():
    config = presets.tiny(vocab_size=10**9, d_model=10**4, num_heads=4)
    assert describe(config, "seq2seq")["parameters"]["embedding"] == 10**13
    with pytest.raises(ValueError, match=r"which take 40,0\d\d\.\d GB, and there are [\d,.]+ GB of memory"):
        MODELS["seq2seq"](config)
    with pytest.raises(
        ValueError, match=r"has 12,520,000,035,536 numbers, which take 50,080\.0 GB; at most 1,000 layers"
    ):
        MODELS["seq2seq"](presets.tiny(encoder_layers=10**9))


@pytest.mark.parametrize("attention", ["vanilla", "random+vanilla", "fixed_random", ["dense", "random"]])
@pytest.mark.parametrize("fields", [{}, {"tie_word_embeddings": False}, {"positions": "learned"}])
def test_sizes_are_those_of_the_model(attention, fields):
    config: SynthesizerConfig = presets.tiny(attention, **fields)
    model = MODELS["seq2seq"](config)
    expected = sum(tensor.numel() for tensor in (*model.parameters(), *model.buffers()))
    assert size.count_numbers(config) == expected


FORMS = ["{}", "[]", "3", "null", '{"status": 3}', '{"status": "done", "settings": [], "data": {}}', "[" * 1999]


@pytest.mark.parametrize("text", FORMS)
def test_records_of_another_form(tmp_path, text):
    (tmp_path / "record.json").write_text(text)
    with pytest.raises(ValueError, match=r"record\.json is damaged: ") as caught:
        record.load(tmp_path)
    assert "\n" not in str(caught.value)
    (tmp_path / "results.json").write_text(text)
    with pytest.raises(ValueError, match=r"results\.json holds no results of version 2: "):
        results.load(tmp_path / "results.json")
    (tmp_path / "compare.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"compare\.yaml is damaged: "):
        load_comparison(tmp_path)


def test_a_value_of_another_type_is_named(tmp_path):
    record.RunRecord(status="done", scores={"bleu": {"value": 3}}).save(tmp_path)
    saved = json.loads((tmp_path / "record.json").read_text())
    (tmp_path / "record.json").write_text(json.dumps(saved | {"loss": [[1, 2.5], [2, "x"]]}))
    with pytest.raises(ValueError, match=r"loss\[1\]\[1\] must be a whole number or a number, got 'x'"):
        record.load(tmp_path)


@pytest.mark.parametrize("depth", [101, 900, 950, 970])
def test_deeply_nested_lines_are_refused_wherever_they_are_read(tmp_path, depth):
    """Some of these lines Python could read, but not do more with."""
    line = '{"text": "the dog", "more": ' + "[" * depth + "]" * depth + "}\n"
    (tmp_path / "train.jsonl").write_text(line * 9)
    source = HeldOut(open_source(str(tmp_path)))
    with pytest.raises(ValueError, match=r"train\.jsonl, line 1: JSON is nested too deeply; flatten it"):
        list(source.read("train"))


def test_predictions_that_are_nested_too_deeply(place, tmp_path):
    file = tmp_path / "bad.jsonl"
    file.write_text('{"prediction": ' + "[" * 99_999 + "\n")
    said = call("evaluate", file, "--task", "translation", "--data", place / "translation")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert f"{file}: every line must be an object with a 'prediction'" in said.err


@pytest.mark.filterwarnings("default")
def test_changed_configurations_at_random():
    seed = random.Random("configurations").randrange(1000)
    found = configurations.run(80, seed)
    assert found.tried == 80
    assert not found.failures
    assert min(found.counts["right"], found.counts["clear"]) > 12


@pytest.mark.filterwarnings("default")
def test_damaged_runs_at_random():
    found = checkpoints.run(12, 0)
    assert found.tried == 12
    assert not found.failures
    assert min(found.counts["right"], found.counts["clear"]) > 1


def test_a_classifier_starts_with_another_number_of_classes(place, tmp_path):
    """The usual call of transformers for fine-tuning: the number of classes wins over the saved names."""
    config = presets.tiny("random", vocab_size=40, id2label={0: "a", 1: "b", 2: "c"}, label2id={"a": 0, "b": 1, "c": 2})
    MODELS["classifier"](config).save_pretrained(tmp_path)
    model = MODELS["classifier"].from_pretrained(tmp_path, num_labels=5, ignore_mismatched_sizes=True)
    assert model.config.num_labels == 5
    given: dict[str, Any] = {"num_labels": np.int64(4)}
    assert SynthesizerConfig(**given).num_labels == 4


def test_settings_with_aliases_end_at_once(place, tmp_path):
    """A few lines of YAML can stand for more values than any memory holds."""
    lines = ["a0: &a0 [" + ", ".join(["[]"] * 10) + "]"]
    lines += [f"a{n}: &a{n} [" + ", ".join([f"*a{n - 1}"] * 10) + "]" for n in range(1, 30)]
    (tmp_path / "bomb.yaml").write_text("\n".join(lines))
    with pytest.raises(ValueError, match=r"bomb\.yaml is not YAML: it uses an alias, \*a0; write its value out"):
        read_yaml(tmp_path / "bomb.yaml")
    (tmp_path / "marked.json").write_bytes(b"\xef\xbb\xbf[1]")
    assert read_json(tmp_path / "marked.json") == [1]
