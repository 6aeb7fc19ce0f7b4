"""Small random models of every family that tests convert, and inputs for them."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import (
    AlbertConfig,
    BartConfig,
    BertConfig,
    DistilBertConfig,
    GPT2Config,
    LlamaConfig,
    ModernBertConfig,
    Qwen3Config,
    RobertaConfig,
    T5Config,
    ViTConfig,
)

# Their annotations lack some arguments.
_T5: Any = T5Config
_MODERN_BERT: Any = ModernBertConfig

LENGTH, BATCH, N = 7, 3, 11
"""Tokens and examples of an input, and max_length of the conversions; 11 also holds what is generated."""

VOCABULARY = 31
TEXT: dict[str, Any] = {"vocab_size": VOCABULARY, "max_position_embeddings": 23, "pad_token_id": 0}
BERT: dict[str, Any] = {
    **TEXT,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 29,
}
DECODER: dict[str, Any] = {**BERT, "num_key_value_heads": 2, "eos_token_id": 1, "bos_token_id": 2, "head_dim": 8}


@dataclass(frozen=True)
class Family:
    """A model class with a small configuration.

    Attributes:
        build: returns the configuration.
        model: the name of the model class.
        generates: True if it generates text.
        vision: True if its input is an image, 16 patches and one more token.
    """

    build: Callable[[], Any]
    model: str
    generates: bool = False
    vision: bool = False

    @property
    def auto(self) -> str:
        """The name of the Auto class that loads the model."""
        head = self.model[self.model.index("For") :] if "For" in self.model else "ForCausalLM"
        return "AutoModel" + head.replace("ForConditionalGeneration", "ForSeq2SeqLM")

    @property
    def encoder_decoder(self) -> bool:
        return self.model in ("T5ForConditionalGeneration", "BartForConditionalGeneration")


FAMILIES = {
    "bert": Family(lambda: BertConfig(**BERT), "BertForMaskedLM"),
    "roberta": Family(lambda: RobertaConfig(**BERT), "RobertaForMaskedLM"),
    "distilbert": Family(
        lambda: DistilBertConfig(**TEXT, dim=32, n_layers=2, n_heads=4, hidden_dim=29), "DistilBertForMaskedLM"
    ),
    "albert": Family(lambda: AlbertConfig(**BERT, embedding_size=16), "AlbertForMaskedLM"),
    "gpt2": Family(
        lambda: GPT2Config(
            vocab_size=VOCABULARY, n_positions=23, n_embd=32, n_layer=2, n_head=4, pad_token_id=0, eos_token_id=1
        ),
        "GPT2LMHeadModel",
        generates=True,
    ),
    "t5": Family(
        lambda: _T5(
            vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=29, num_layers=2, num_heads=4, dropout_rate=0.0,
            decoder_start_token_id=0, pad_token_id=0, eos_token_id=1,
        ),
        "T5ForConditionalGeneration",
        generates=True,
    ),
    "bart": Family(
        lambda: BartConfig(
            **TEXT, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, forced_eos_token_id=None,
            decoder_attention_heads=4, encoder_ffn_dim=29, decoder_ffn_dim=29, eos_token_id=1, bos_token_id=2,
            decoder_start_token_id=2,
        ),
        "BartForConditionalGeneration",
        generates=True,
    ),
    "vit": Family(
        lambda: ViTConfig(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=29, image_size=8, patch_size=2
        ),
        "ViTForImageClassification",
        vision=True,
    ),
    "llama": Family(lambda: LlamaConfig(**DECODER), "LlamaForCausalLM", generates=True),
    "qwen3": Family(lambda: Qwen3Config(**DECODER), "Qwen3ForCausalLM", generates=True),
    "modernbert": Family(
        lambda: _MODERN_BERT(
            **BERT, local_attention=4, global_attn_every_n_layers=2, eos_token_id=1, bos_token_id=2, cls_token_id=2,
            sep_token_id=1, embedding_dropout=0.0, attention_dropout=0.0,
        ),
        "ModernBertForMaskedLM",
    ),
}  # fmt: skip

GENERATING = [name for name, family in FAMILIES.items() if family.generates]
TEXTS = [name for name, family in FAMILIES.items() if not family.vision]


@cache
def _original(name: str) -> Any:
    family = FAMILIES[name]
    torch.manual_seed(1)
    config = family.build()
    for dropout in ("dropout", "hidden_dropout_prob", "attention_probs_dropout_prob", "attention_dropout"):
        if hasattr(config, dropout):
            setattr(config, dropout, 0.0)
    for dropout in ("activation_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop"):
        if hasattr(config, dropout):
            setattr(config, dropout, 0.0)
    model = getattr(transformers, family.model)(config)
    for parameter in model.parameters():  # as initialised, attention hardly depends on its logits
        nn.init.normal_(parameter, std=0.3)
    return model.double().eval()


def original(name: str) -> Any:
    """Return a new model of a family, in float64 and without dropout."""
    return copy.deepcopy(_original(name))


def longest(name: str) -> int:
    """Return max_length for conversions of a family."""
    return 17 if FAMILIES[name].vision else N


def inputs(name: str, batch: int = BATCH, length: int = LENGTH) -> dict[str, Tensor]:
    """Return an input without padding."""
    generator = torch.Generator().manual_seed(5)
    if FAMILIES[name].vision:
        return {"pixel_values": torch.randn(batch, 3, 8, 8, generator=generator, dtype=torch.float64)}
    tokens = torch.randint(3, VOCABULARY, (batch, length), generator=generator)
    given = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    if FAMILIES[name].encoder_decoder:
        given["decoder_input_ids"] = torch.randint(3, VOCABULARY, (batch, length - 2), generator=generator)
    return given


def padded(given: dict[str, Tensor], side: str, by: int = 2) -> dict[str, Tensor]:
    """Return an input with padding tokens on one side of the (encoder's) texts."""
    tokens, mask = given["input_ids"], given["attention_mask"]
    pad = torch.zeros(len(tokens), by, dtype=torch.long)
    order = slice(None, None, 1 if side == "right" else -1)
    return given | {
        "input_ids": torch.cat([tokens, pad + 9][order], dim=1),
        "attention_mask": torch.cat([mask, pad][order], dim=1),
    }


def logits(model: Any, given: dict[str, Tensor], **more: Any) -> Tensor:
    return model(**given, **more).logits
