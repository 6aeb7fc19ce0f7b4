"""First weights: models that differ in their attention alone start alike in all that they share."""

import itertools

import pytest
import torch
from torch import Tensor

from synthattn.layers.synthetic_attention import SyntheticAttention
from synthattn.tasks.base import Kind
from synthattn.training.model import build, configuration, load, load_for, matched_control, parameters
from synthattn.training.settings import DROPOUTS, ModelSettings

FIELDS = {"vocab_size": 29, "max_position_embeddings": 11, "d_model": 12, "num_heads": 3, "d_ff": 7}


def weights(attention: str, seed: int = 3, kind: Kind = "seq2seq", **fields: object) -> dict[str, Tensor]:
    config = configuration(ModelSettings("tiny", attention, None, FIELDS | fields))
    return dict(build(config, kind, seed).named_parameters())


def part(name: str, found: dict[str, Tensor]) -> dict[str, Tensor]:
    """Parameters of the self-attention of the encoder's first layer, by what comes after ``name``."""
    prefix = f"model.encoder.blocks.0.attention.{name}."
    return {key.removeprefix(prefix): value for key, value in found.items() if key.startswith(prefix)}


SPECS = ["vanilla", "random", "random+vanilla", "vanilla+random", "dense", "factorized_random", "random+dense+vanilla"]


def test_all_that_models_share_starts_alike():
    models = {spec: weights(spec) for spec in SPECS}
    for first, second in itertools.combinations(SPECS, 2):
        shared = [name for name in models[first].keys() & models[second].keys() if ".synthesizer." not in name]
        for end in ("embedding.weight", "value.weight", "output.weight"):
            assert any(name.endswith(end) for name in shared), end
        assert any("feed_forward" in name for name in shared)
        assert any("cross_attention" in name for name in shared)
        assert any("norm" in name for name in shared)
        for name in shared:
            assert models[first][name].equal(models[second][name]), f"{name} of {first} and {second}"


@pytest.mark.parametrize(
    ("alone", "mixture", "term"),
    [
        ("vanilla", "random+vanilla", 1),
        ("vanilla", "vanilla+random", 0),
        ("vanilla", "random+dense+vanilla", 2),
        ("random", "random+vanilla", 0),
        ("random", "vanilla+random", 1),
        ("dense", "random+dense+vanilla", 1),
    ],
)
def test_a_synthesizer_starts_alike_alone_and_in_mixtures(alone, mixture, term):
    single, mixed = part("synthesizer", weights(alone)), part(f"synthesizer.terms.{term}", weights(mixture))
    assert single
    assert single.keys() == mixed.keys()
    for name, value in single.items():
        assert value.equal(mixed[name]), name


def test_the_same_term_twice_starts_differently():
    mixed = weights("random+random")
    first, second = (part(f"synthesizer.terms.{n}", mixed) for n in (0, 1))
    assert first.keys() == second.keys()
    assert not any(first[name].equal(second[name]) for name in first)


def test_layers_and_stacks_start_differently():
    found = weights("vanilla")
    values = [value for name, value in found.items() if name.endswith("value.weight")]
    assert len(values) == 6, "two layers of the encoder, two of the decoder with two attentions"
    assert not any(a.equal(b) for a, b in itertools.combinations(values, 2))


def test_kinds_of_models_share_their_encoder_and_embedding():
    reader, writer = weights("random", kind="classification", num_labels=2), weights("random", kind="seq2seq")
    shared = reader.keys() & writer.keys()
    assert any("encoder" in name for name in shared)
    assert all(reader[name].equal(writer[name]) for name in shared)


def test_other_seeds_give_other_weights_and_the_same_seed_the_same():
    first, again, other = (weights("random+vanilla", seed) for seed in (3, 3, 4))
    assert all(first[name].equal(again[name]) for name in first)
    matrices = [name for name, value in first.items() if value.dim() == 2 and not name.endswith("alpha")]
    assert len(matrices) > 10
    assert not any(first[name].equal(other[name]) for name in matrices)


def test_building_leaves_the_random_numbers_as_they_were():
    torch.manual_seed(7)
    expected = torch.rand(5)
    torch.manual_seed(7)
    weights("random+vanilla")
    assert torch.rand(5).equal(expected)


def test_the_embedding_starts_as_one_also_where_it_is_the_output_matrix():
    fields = {"vocab_size": 499, "d_model": 48}
    tied, untied = (weights("random", kind="causal-lm", tie_word_embeddings=tie, **fields) for tie in (True, False))
    assert "lm_head.weight" not in tied
    embedding = tied["model.embedding.weight"]
    assert embedding.equal(untied["model.embedding.weight"])
    assert embedding.std().item() == pytest.approx(48**-0.5, rel=0.05)
    limit = (6 / (499 + 48)) ** 0.5  # of Xavier's uniform distribution, which linear maps have
    assert untied["lm_head.weight"].abs().max().item() <= limit < embedding.abs().max().item()


def test_first_weights_have_the_spread_that_the_model_says():
    config = configuration(ModelSettings("tiny", "vanilla", None, {"vocab_size": 29}))
    torch.manual_seed(0)
    ours, usual = build(config, "seq2seq", 0), type(build(config, "seq2seq", 0))(config)
    for (name, value), other in zip(ours.named_parameters(), usual.parameters(), strict=True):
        if value.numel() >= 500:
            assert value.std().item() == pytest.approx(other.std().item(), rel=0.15), name
        elif other.std() == 0:
            assert value.equal(other), name


@pytest.mark.parametrize("kind", ["seq2seq", "causal-lm", "classification"])
@pytest.mark.parametrize("attention", ["random", "dense", "random+vanilla"])
def test_the_control_has_as_many_parameters_as_it_can(attention: str, kind: Kind):
    settings = ModelSettings("tiny", attention, None, {"max_position_embeddings": 61})
    fields = {"vocab_size": 31} | ({"num_labels": 3} if kind == "classification" else {})
    target = parameters(build(configuration(settings, **fields), kind, 0))
    control = matched_control(settings, kind, target, **fields)
    assert control.attention == "vanilla"
    made = parameters(build(configuration(control, **fields), kind, 0))
    d_ff = control.fields["d_ff"]
    wider = ModelSettings("tiny", "vanilla", None, control.fields | {"d_ff": d_ff + 1})
    step = parameters(build(configuration(wider, **fields), kind, 0)) - made
    assert abs(made - target) <= max(step / 2, 0.001 * target)


def test_a_control_of_a_smaller_model_is_narrower_and_of_nothing_the_least():
    settings = ModelSettings("tiny", "vanilla")
    assert matched_control(settings, "seq2seq", 1, vocab_size=31).fields["d_ff"] == 1
    now = parameters(build(configuration(settings, vocab_size=31), "seq2seq", 0))
    assert matched_control(settings, "seq2seq", now, vocab_size=31).fields["d_ff"] == 64


def test_a_saved_model_comes_back_as_what_it_was(tmp_path):
    model = build(configuration(ModelSettings("tiny", "random"), vocab_size=31, num_labels=3), "classification", 0)
    model.save_pretrained(tmp_path)
    found = load(tmp_path)
    assert type(found) is type(model)
    for name, value in model.state_dict().items():
        assert found.state_dict()[name].equal(value)
    assert configuration(ModelSettings(start=str(tmp_path))).vocab_size == 31


def test_dropout_of_a_saved_model_can_be_changed(tmp_path):
    """The dropout changes in the configuration and in all parts of the model; all else stays."""
    fields = {"dropout": 0.25, "attention_dropout": 0.5, "activation_dropout": 0.125, "classifier_dropout": 0.375}
    model = build(configuration(ModelSettings("tiny", "vanilla"), vocab_size=31, num_labels=3), "classification", 0)
    model.save_pretrained(tmp_path)
    config = configuration(ModelSettings(start=str(tmp_path), fields=fields))
    found = load_for(tmp_path, "classification", "abc", config)
    assert fields.keys() == set(DROPOUTS)
    saved = load(tmp_path).config.to_dict()
    assert {name: value for name, value in found.config.to_dict().items() if value != saved[name]} == fields
    parts = {module.p for module in found.modules() if isinstance(module, torch.nn.Dropout)}
    assert parts == {0.25, 0.125, 0.375}
    assert {layer.dropout for layer in found.modules() if isinstance(layer, SyntheticAttention)} == {0.5}
    for name, value in model.state_dict().items():
        assert found.state_dict()[name].equal(value)
    for wrong in (1.5, "some"):
        with pytest.raises(ValueError, match="dropout") as caught:
            configuration(ModelSettings(start=str(tmp_path), fields={"dropout": wrong}))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (ModelSettings("tinny"), "unknown preset 'tinny'; did you mean tiny?"),
        (ModelSettings("tiny", "ramdom"), "did you mean random"),
        (ModelSettings("tiny", fields={"d_modle": 3}), "a configuration has no field 'd_modle'; did you mean d_model?"),
        (ModelSettings("tiny", fields={"d_model": "wide"}), "d_model"),
        (ModelSettings(start="/nowhere"), "no preset and no folder '/nowhere'"),
    ],
)
def test_errors_are_one_line(settings: ModelSettings, message: str):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        configuration(settings)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
