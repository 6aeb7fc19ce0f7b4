"""What tests of conversions share."""

import pytest
import torch
import transformers
from model_families import original
from tokenizers import Tokenizer, models, pre_tokenizers

from synthattn.convert import replace


@pytest.fixture(autouse=True)
def quiet_transformers():
    """Keep progress bars and notes about small vocabularies out of the output."""
    transformers.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()


@pytest.fixture(autouse=True)
def no_search_for_optimizers(request, monkeypatch):
    """Leave out the search for optimizers, which takes half a second, where it is not tested."""
    if "optimizer" not in request.node.name:
        monkeypatch.setattr(replace, "watch_optimizers", lambda model: None)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A model with a tokenizer of words, saved."""
    place = tmp_path_factory.mktemp("model")
    words = ["[PAD]", "[UNK]", "[MASK]", *(f"w{n}" for n in range(28))]
    found = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="[UNK]"))
    found.pre_tokenizer = pre_tokenizers.Whitespace()  # pyright: ignore[reportAttributeAccessIssue]
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=found, pad_token="[PAD]", unk_token="[UNK]", mask_token="[MASK]"
    ).save_pretrained(place)
    original("bert").float().save_pretrained(place)
    return place


@pytest.fixture
def texts(tmp_path):
    file = tmp_path / "texts.txt"
    chance = torch.Generator().manual_seed(0)
    rows = [torch.randint(0, 28, (5 + n % 7,), generator=chance).tolist() for n in range(20)]
    file.write_text("\n".join(" ".join(f"w{n}" for n in row) for row in rows))
    return file
