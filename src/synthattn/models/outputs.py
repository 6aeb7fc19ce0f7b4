"""Outputs of the models: transformers' classes with the ponder cost of adaptive halting."""

from dataclasses import dataclass
from typing import no_type_check  # transformers annotates tensors of any type as FloatTensor

from torch import Tensor

from synthattn.models.compat import (
    BaseModelOutputWithPastAndCrossAttentions,
    CausalLMOutputWithPast,
    MaskedLMOutput,
    Seq2SeqLMOutput,
    Seq2SeqModelOutput,
    SequenceClassifierOutput,
)


@no_type_check
@dataclass
class StackOutput(BaseModelOutputWithPastAndCrossAttentions):
    """Output of a stack. With halting, ``ponder_cost`` is the mean of a token's steps plus its remainder."""

    ponder_cost: Tensor | None = None


@no_type_check
@dataclass
class EncoderDecoderOutput(Seq2SeqModelOutput):
    ponder_cost: Tensor | None = None


@no_type_check
@dataclass
class ConditionalGenerationOutput(Seq2SeqLMOutput):
    ponder_cost: Tensor | None = None


@no_type_check
@dataclass
class CausalLMOutput(CausalLMOutputWithPast):
    ponder_cost: Tensor | None = None


@no_type_check
@dataclass
class MaskedLanguageModelOutput(MaskedLMOutput):
    ponder_cost: Tensor | None = None


@no_type_check
@dataclass
class ClassifierOutput(SequenceClassifierOutput):
    ponder_cost: Tensor | None = None
