"""Hugging Face models with any token mixer. Importing this module registers them with the Auto classes."""

from synthattn.models import presets
from synthattn.models.compat import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
)
from synthattn.models.configuration import SynthesizerConfig
from synthattn.models.modeling import (
    SynthesizerForCausalLM,
    SynthesizerForConditionalGeneration,
    SynthesizerForMaskedLM,
    SynthesizerForSequenceClassification,
    SynthesizerModel,
)

AutoConfig.register(SynthesizerConfig.model_type, SynthesizerConfig, exist_ok=True)
AutoModel.register(SynthesizerConfig, SynthesizerModel, exist_ok=True)
AutoModelForSeq2SeqLM.register(SynthesizerConfig, SynthesizerForConditionalGeneration, exist_ok=True)
AutoModelForCausalLM.register(SynthesizerConfig, SynthesizerForCausalLM, exist_ok=True)
AutoModelForMaskedLM.register(SynthesizerConfig, SynthesizerForMaskedLM, exist_ok=True)
AutoModelForSequenceClassification.register(SynthesizerConfig, SynthesizerForSequenceClassification, exist_ok=True)
# The Trainer reads this table to decide whether it must shift the labels for label smoothing.
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[SynthesizerConfig.model_type] = SynthesizerForCausalLM.__name__

__all__ = [
    "SynthesizerConfig",
    "SynthesizerForCausalLM",
    "SynthesizerForConditionalGeneration",
    "SynthesizerForMaskedLM",
    "SynthesizerForSequenceClassification",
    "SynthesizerModel",
    "presets",
]
