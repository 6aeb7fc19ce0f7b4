"""The models: a bare one, and four with heads, like any other model of transformers."""

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from synthattn.engine.projection import project
from synthattn.layers.positions import LearnedPositions
from synthattn.layers.synthetic_attention import SyntheticAttention
from synthattn.messages import suggestion
from synthattn.models import build
from synthattn.models.block import Block
from synthattn.models.cache import decoder_cache
from synthattn.models.compat import (
    BaseModelOutput,
    Cache,
    ForCausalLMLoss,
    ForMaskedLMLoss,
    ForSequenceClassificationLoss,
    PreTrainedModel,
    can_return_tuple,
)
from synthattn.models.configuration import SynthesizerConfig
from synthattn.models.generation import SynthesizerGenerationMixin
from synthattn.models.outputs import (
    CausalLMOutput,
    ClassifierOutput,
    ConditionalGenerationOutput,
    EncoderDecoderOutput,
    MaskedLanguageModelOutput,
    StackOutput,
)
from synthattn.models.size import check_size
from synthattn.synthesizers.base import Resize, Synthesizer

LOSS_OPTIONS = ("num_items_in_batch", "ignore_index", "shift_labels")
SHOWN = ("output_attentions", "output_hidden_states")
"""Options of every model that add to its output."""


class SynthesizerPreTrainedModel(PreTrainedModel):
    """Base class of all models: initial weights, loading, and changes of the longest input."""

    config: SynthesizerConfig
    config_class = SynthesizerConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _no_split_modules = ["Block"]  # noqa: RUF012 (as transformers has it)
    _skip_keys_device_placement = ["past_key_values"]  # noqa: RUF012

    def _init_weights(self, module: nn.Module) -> None:
        # Through torch.nn.init alone, whose functions transformers makes pass over what a checkpoint has filled.
        if isinstance(module, nn.Embedding):
            # Unit variance in the stack, on whichever side the scale is.
            nn.init.normal_(module.weight, std=self.config.d_model**-0.5 if self.config.scale_embedding else 1.0)
        elif isinstance(module, nn.Linear):
            self._init_matrix(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif hasattr(module, "reset_parameters"):
            module.reset_parameters()  # pyright: ignore[reportCallIssue]
            for part in module.children():
                if isinstance(part, nn.Linear):
                    self._init_matrix(part.weight)

    def _init_matrix(self, weight: Tensor) -> None:
        if self.config.initializer == "xavier":
            nn.init.xavier_uniform_(weight)
        else:
            nn.init.normal_(weight, std=weight.shape[1] ** -0.5)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Any:
        """Load as ``PreTrainedModel.from_pretrained`` does; a checkpoint for another longest input is named as such."""
        try:
            return super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)
        except RuntimeError as error:
            given = kwargs.get("config")
            asked = getattr(given, "max_position_embeddings", kwargs.get("max_position_embeddings"))
            if asked is None or pretrained_model_name_or_path is None:
                raise
            place = {
                key: kwargs[key]
                for key in ("revision", "subfolder", "cache_dir", "token", "local_files_only")
                if key in kwargs
            }
            saved = SynthesizerConfig.from_pretrained(pretrained_model_name_or_path, **place).max_position_embeddings
            if asked == saved:
                raise
            raise ValueError(
                f"{pretrained_model_name_or_path} was saved with max_position_embeddings={saved}, asked for {asked}; "
                f"load it as it is and call model.resize_max_length({asked})"
            ) from error

    def resize_max_length(self, max_length: int, how: Resize = "pad") -> None:
        """Change the longest input, keeping what was learned, see ``SyntheticAttention.resize_max_length``."""
        if max_length < 1:
            raise ValueError(f"max_length must be at least 1, got {max_length}")
        for module in self.modules():  # all are asked before the first is changed
            if isinstance(module, Synthesizer):
                module.check_resize(max_length)
        for module in self.modules():
            if isinstance(module, Block):
                module.attention.resize_max_length(max_length, how)
                if module.cross_attention is not None:
                    module.cross_attention.resize_max_length(max_length, how)
            elif isinstance(module, LearnedPositions):
                module.resize_max_length(max_length, how)
        self.config.max_position_embeddings = max_length
        self._update_specs()

    def _update_specs(self) -> None:
        """Sizes that are options of a spec, such as those of factorized dense, may have changed.

        Also for a stack that this model does not have: another one that starts from it may.
        """
        renamed: dict[str, str] = {}
        parts: list[tuple[Any, str]] = [
            ("encoder", "attention"),
            ("decoder", "attention"),
            ("cross", "cross_attention"),
        ]
        for name, part in parts:
            stack = getattr(self.base_model, "decoder" if name == "cross" else name)
            mixers = [] if stack is None else [getattr(block, part) for block in stack.layers]
            for spec, mixer in zip(self.config.layer_specs(name), mixers, strict=False):
                if isinstance(mixer, SyntheticAttention):
                    renamed[spec] = str(mixer.spec)
        for name in ("encoder_attention", "decoder_attention", "cross_attention"):
            specs = getattr(self.config, name)
            new = [renamed.get(spec, spec) for spec in specs] if isinstance(specs, list) else renamed.get(specs, specs)
            setattr(self.config, name, new)


class SynthesizerModel(SynthesizerPreTrainedModel):
    """The bare model, which turns token ids into token vectors in context.

    The configuration says which stacks there are: ``is_encoder_decoder`` both, ``is_decoder`` a decoder alone, neither
    an encoder alone.
    """

    def __init__(self, config: SynthesizerConfig) -> None:
        super().__init__(config)
        encodes = config.is_encoder_decoder or not config.is_decoder
        decodes = config.is_encoder_decoder or config.is_decoder
        for name, needed in (("encoder", encodes), ("decoder", decodes)):
            if needed and getattr(config, f"{name}_layers") < 1:
                raise ValueError(
                    f"this model has {'an' if name == 'encoder' else 'a'} {name}, but {name}_layers="
                    f"{getattr(config, f'{name}_layers')}; it must be at least 1"
                )
        check_size(config)
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.encoder = build.encoder(config) if encodes else None
        self.decoder = build.decoder(config) if decodes else None
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.embedding

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.embedding = value

    def get_encoder(self, modality: str | None = None) -> nn.Module:
        return self if self.encoder is None else Encoder(self)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        decoder_position_ids: Tensor | None = None,
        encoder_outputs: Any = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> StackOutput | EncoderDecoderOutput:
        """The arguments that start with ``decoder_``, and ``encoder_outputs``, are for models with both stacks.

        Args:
            input_ids: ``(batch, length)``.
            attention_mask: 1 = a token, 0 = padding, ``(batch, length)``; or complete, causality included,
                ``(batch, 1, queries, keys)``: whole numbers or truth values as before, or a float that is added.
            position_ids: where the tokens stand, 0, 1, ... without the padding unless given.
            decoder_input_ids: what was decoded so far.
            decoder_attention_mask: as ``attention_mask``.
            decoder_position_ids: as ``position_ids``.
            encoder_outputs: what the encoder returned for ``input_ids``.
            past_key_values: what earlier calls kept of the tokens before these.
            inputs_embeds: token vectors in place of ``input_ids``.
            decoder_inputs_embeds: the same for the decoder.
            use_cache: whether to return ``past_key_values``.
            output_attentions: whether to return attention weights.
            output_hidden_states: whether to return the vectors before each layer, and the last ones.
        """
        shown = self._shown(output_attentions, output_hidden_states)
        if self.decoder is None:
            return self._encode(input_ids, inputs_embeds, attention_mask, position_ids, shown)
        if self.encoder is None:
            x = self._embed(input_ids, inputs_embeds, "input_ids")
            cache = self._cache(past_key_values, use_cache)
            return self.decoder(
                x, attention_mask=attention_mask, position_ids=position_ids, past_key_values=cache, **shown
            )
        if attention_mask is not None and attention_mask.dim() != 2:
            raise ValueError(
                f"an encoder-decoder needs an attention_mask of shape (batch, length) to know which tokens the decoder "
                f"may attend to, got {tuple(attention_mask.shape)}"
            )
        if encoder_outputs is None:
            encoder_outputs = self._encode(input_ids, inputs_embeds, attention_mask, position_ids, shown)
        elif not isinstance(encoder_outputs, BaseModelOutput | StackOutput):
            fields = ("last_hidden_state", "hidden_states", "attentions", "ponder_cost")
            named = isinstance(encoder_outputs, Mapping)
            given = encoder_outputs if named else dict(zip(fields, encoder_outputs, strict=False))
            encoder_outputs = StackOutput(**{field: given.get(field) for field in fields})
        decoded = self.decoder(
            self._embed(decoder_input_ids, decoder_inputs_embeds, "decoder_input_ids"),
            attention_mask=decoder_attention_mask,
            position_ids=decoder_position_ids,
            memory=encoder_outputs.last_hidden_state,
            memory_mask=attention_mask,
            past_key_values=self._cache(past_key_values, use_cache),
            **shown,
        )
        costs = [getattr(part, "ponder_cost", None) for part in (encoder_outputs, decoded)]
        costs = [cost for cost in costs if cost is not None]
        return EncoderDecoderOutput(
            last_hidden_state=decoded.last_hidden_state,
            past_key_values=decoded.past_key_values,
            decoder_hidden_states=decoded.hidden_states,
            decoder_attentions=decoded.attentions,
            cross_attentions=decoded.cross_attentions,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.hidden_states,
            encoder_attentions=encoder_outputs.attentions,
            ponder_cost=torch.stack(costs).sum() if costs else None,
        )

    def _shown(self, output_attentions: bool | None, output_hidden_states: bool | None) -> dict[str, Any]:
        """Return options of a stack, which come from the configuration where they are None."""
        config = self.config
        return {
            "output_attentions": config.output_attentions if output_attentions is None else output_attentions,
            "output_hidden_states": (
                config.output_hidden_states if output_hidden_states is None else output_hidden_states
            ),
            "plain": config._attn_implementation == "eager",
        }

    def _encode(
        self,
        input_ids: Tensor | None,
        inputs_embeds: Tensor | None,
        attention_mask: Tensor | None,
        position_ids: Tensor | None,
        shown: dict[str, Any],
    ) -> StackOutput:
        assert self.encoder is not None
        x = self._embed(input_ids, inputs_embeds, "input_ids")
        return self.encoder(x, attention_mask=attention_mask, position_ids=position_ids, **shown)

    def _embed(self, ids: Tensor | None, vectors: Tensor | None, name: str) -> Tensor:
        if (ids is None) == (vectors is None):
            other = name.replace("input_ids", "inputs_embeds")
            raise ValueError(f"give {name} or {other}, {'not both' if ids is not None else 'got neither'}")
        if vectors is None:
            assert ids is not None
            if ids.dim() != 2:
                raise ValueError(f"{name} must have shape (batch, length), got {tuple(ids.shape)}")
            vectors = self.embedding(ids)
        assert vectors is not None
        return vectors * self.config.d_model**0.5 if self.config.scale_embedding else vectors

    def _cache(self, cache: Cache | None, use_cache: bool | None) -> Cache | None:
        assert self.decoder is not None
        if use_cache is None:
            use_cache = self.config.use_cache and not self.training
        if self.training and self.is_gradient_checkpointing:
            use_cache = False
        if cache is None and not use_cache:
            return None
        return decoder_cache(cache, self.decoder.keeps_keys, self.decoder.cross_keeps_keys)


class Encoder(nn.Module):
    """The encoder of a model with its embedding, as ``get_encoder`` hands it out."""

    main_input_name = "input_ids"
    model: SynthesizerModel

    def __init__(self, model: SynthesizerModel) -> None:
        super().__init__()
        self.embedding, self.encoder = model.embedding, model.encoder
        # Not as a part: who freezes the encoder does not mean the decoder.
        object.__setattr__(self, "model", model)
        self.training = model.training  # not of the parts, which may be set otherwise

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool = True,
    ) -> BaseModelOutput | tuple[Tensor, ...]:
        shown = self.model._shown(output_attentions, output_hidden_states)
        result = self.model._encode(input_ids, inputs_embeds, attention_mask, position_ids, shown)
        # Beam search repeats every tensor that is in here for each beam.
        output = BaseModelOutput(result.last_hidden_state, result.hidden_states, result.attentions)
        return output if return_dict else output.to_tuple()


def _part(config: SynthesizerConfig, is_encoder_decoder: bool, is_decoder: bool) -> SynthesizerConfig:
    """Return a copy of the configuration for the stacks that a model class uses."""
    config = copy.deepcopy(config)
    config.is_encoder_decoder, config.is_decoder = is_encoder_decoder, is_decoder
    return config


class _ModelWithHead(SynthesizerPreTrainedModel):
    """Base class of models whose head turns the vectors of the bare model into logits."""

    model: SynthesizerModel
    _output_class: Any
    # The loss that transformers would choose by the name of a class shifts the labels of a decoder once more.
    _loss_of: Callable[..., Tensor] = staticmethod(ForMaskedLMLoss)

    def _head(self, vectors: Tensor, attention_mask: Tensor | None) -> Tensor:
        raise NotImplementedError

    def _predict(
        self, labels: Tensor | None, options: dict[str, Any], kept: slice | Tensor = slice(None), **inputs: Any
    ) -> Any:
        """Return the bare model's output with logits of the ``kept`` positions, and the loss if there are labels."""
        for name in options:  # forward takes any, because the Trainer passes options of the loss by name
            if name not in (*LOSS_OPTIONS, *SHOWN):
                known = {*inspect.signature(self.forward).parameters, *SHOWN} - {"options"}
                raise TypeError(f"forward() got an unexpected argument {name!r}{suggestion(name, known)}")
        shown = {name: options[name] for name in SHOWN if name in options}
        output = self.model(**inputs, **shown, return_dict=True)
        logits = self._head(output.last_hidden_state[:, kept], inputs["attention_mask"])
        loss = None if labels is None else self._loss(logits, labels, output.ponder_cost, options)
        rest = {name: value for name, value in output.items() if name != "last_hidden_state"}
        return self._output_class(loss=loss, logits=logits, **rest)

    def _loss(self, logits: Tensor, labels: Tensor, ponder_cost: Tensor | None, options: dict[str, Any]) -> Tensor:
        options = {name: value for name, value in options.items() if name in LOSS_OPTIONS}
        sizes = {"vocab_size": self.config.vocab_size, "config": self.config}
        loss = self._loss_of(logits=logits, pooled_logits=logits, labels=labels, **sizes, **options)
        if ponder_cost is None:
            return loss
        # Of several batches that make one step, each counts with its share of the tokens.
        total = options.get("num_items_in_batch")
        share = 1.0 if total is None else (labels != options.get("ignore_index", -100)).sum() / total
        return loss + self.config.ponder_weight * share * ponder_cost


class _LanguageModel(_ModelWithHead):
    """Base class of models that predict the token at each position."""

    _tied_weights_keys = {"lm_head.weight": "model.embedding.weight"}  # noqa: RUF012

    def __init__(self, config: SynthesizerConfig) -> None:
        super().__init__(config)
        self.model = SynthesizerModel(config)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        self.lm_head = new_embeddings

    def _head(self, vectors: Tensor, attention_mask: Tensor | None) -> Any:
        return project(self.lm_head, vectors * self.config.d_model**-0.5 if self.config.scale_logits else vectors)


class SynthesizerForConditionalGeneration(_LanguageModel, SynthesizerGenerationMixin):
    """An encoder and a decoder, for translation, summarisation, dialogue, span corruption."""

    _output_class = ConditionalGenerationOutput

    def __init__(self, config: SynthesizerConfig) -> None:
        super().__init__(_part(config, is_encoder_decoder=True, is_decoder=False))

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """Return the labels shifted by one position, after the start token."""
        start, pad = self.config.decoder_start_token_id, self.config.pad_token_id
        if start is None or pad is None:
            raise ValueError(
                f"labels need decoder_start_token_id and pad_token_id in the configuration, got {start} and {pad}"
            )
        shifted = labels.new_full(labels.shape, start)
        shifted[:, 1:] = labels[:, :-1]
        return shifted.masked_fill(shifted == -100, pad)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        encoder_outputs: Any = None,
        past_key_values: Cache | None = None,
        position_ids: Tensor | None = None,
        decoder_position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        **options: Any,
    ) -> ConditionalGenerationOutput:
        """Run ``SynthesizerModel`` with its arguments, and predict the tokens of the decoder.

        ``labels`` are the tokens to decode, -100 where there is none. The decoder reads them one place later, unless
        ``decoder_input_ids`` are given. ``options`` are ``output_attentions``, ``output_hidden_states`` and options
        of the loss.
        """
        if labels is not None and decoder_input_ids is None and decoder_inputs_embeds is None:
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        return self._predict(
            labels,
            options,
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            decoder_position_ids=decoder_position_ids,
            encoder_outputs=encoder_outputs,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            decoder_inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
        )


class SynthesizerForCausalLM(_LanguageModel, SynthesizerGenerationMixin):
    """A decoder alone, for language modelling."""

    _keys_to_ignore_on_load_unexpected = [r"^model\.encoder\.", r"\.cross_(attention|residual)\."]  # noqa: RUF012
    _loss_of = staticmethod(ForCausalLMLoss)
    _output_class = CausalLMOutput

    def __init__(self, config: SynthesizerConfig) -> None:
        super().__init__(_part(config, is_encoder_decoder=False, is_decoder=True))

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **options: Any,
    ) -> CausalLMOutput:
        """Run ``SynthesizerModel`` with its arguments, and predict the next token at each position.

        ``labels`` are the tokens themselves, -100 where none is to be predicted. ``logits_to_keep`` asks for the logits
        of that many last tokens, 0 for all, or of the tokens at these positions. ``options`` are
        ``output_attentions``, ``output_hidden_states`` and options of the loss.
        """
        return self._predict(
            labels,
            options,
            slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep,
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
        )


class _EncoderWithHead(_ModelWithHead):
    """Base class of encoders whose vectors a head turns into logits."""

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **options: Any,
    ) -> Any:
        """Run ``SynthesizerModel`` with its arguments, and predict the labels.

        ``labels`` are the tokens to fill in, -100 where there is none; or classes, and numbers where ``num_labels=1``.
        ``options`` are ``output_attentions``, ``output_hidden_states`` and options of the loss.
        """
        inputs: dict[str, Any] = {"input_ids": input_ids, "position_ids": position_ids, "inputs_embeds": inputs_embeds}
        return self._predict(labels, options, attention_mask=attention_mask, **inputs)


class SynthesizerForMaskedLM(_EncoderWithHead, _LanguageModel):
    """An encoder alone that fills in masked tokens."""

    _keys_to_ignore_on_load_unexpected = [r"^model\.decoder\."]  # noqa: RUF012
    _output_class = MaskedLanguageModelOutput

    def __init__(self, config: SynthesizerConfig) -> None:
        super().__init__(_part(config, is_encoder_decoder=False, is_decoder=False))


class SynthesizerForSequenceClassification(_EncoderWithHead):
    """An encoder alone that puts texts into ``num_labels`` classes, or with ``num_labels=1`` gives them a number."""

    _keys_to_ignore_on_load_unexpected = [r"^model\.decoder\.", r"^lm_head\."]  # noqa: RUF012
    # The losses of numbers and of several labels are means of a batch, which the Trainer must then average itself.
    accepts_loss_kwargs = False
    _loss_of = staticmethod(ForSequenceClassificationLoss)
    _output_class = ClassifierOutput

    def __init__(self, config: SynthesizerConfig) -> None:
        super().__init__(_part(config, is_encoder_decoder=False, is_decoder=False))
        self.num_labels: int = self.config.num_labels or 1
        self.model = SynthesizerModel(self.config)
        self.dropout = nn.Dropout(self.config.classifier_dropout)
        self.classifier = nn.Linear(self.config.d_model, self.num_labels)
        self.post_init()

    def _head(self, vectors: Tensor, attention_mask: Tensor | None) -> Tensor:
        return self.classifier(self.dropout(self._pool(vectors, attention_mask)))

    def _pool(self, vectors: Tensor, attention_mask: Tensor | None) -> Tensor:
        if attention_mask is not None and attention_mask.dim() != 2:
            raise ValueError("classification needs an attention_mask of shape (batch, length) to know the tokens")
        if self.config.classifier_pooling == "first":
            if attention_mask is None:
                return vectors[:, 0]
            first = attention_mask.long().argmax(-1)  # padding may be on the left
            return vectors[torch.arange(len(vectors), device=vectors.device), first]
        if attention_mask is None:
            return vectors.mean(1)
        kept = (attention_mask != 0).unsqueeze(-1).to(vectors.dtype)
        return (vectors * kept).sum(1) / kept.sum(1).clamp(min=1)
