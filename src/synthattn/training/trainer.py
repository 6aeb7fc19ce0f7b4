"""The Trainer of transformers with batches by token count, smoothed loss and sealed checkpoints."""

import json
import math
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader
from transformers import Adafactor, Trainer, TrainingArguments

from synthattn.data.batching import TokenBatches
from synthattn.saved_file import write_text
from synthattn.synthesizers.mixture import MixtureWeights
from synthattn.tasks.inputs import IGNORED, RunBatches
from synthattn.training import checkpoints
from synthattn.training.prepare import Prepared
from synthattn.training.settings import Settings, TrainingSettings

SHARDED = {"transformer_layer_cls_to_wrap": ["Block"], "state_dict_type": "FULL_STATE_DICT"}
"""How a sharded model is split, and how it is saved: whole. Torch reads shards with pickle, and a checkpoint of shards
could be neither averaged nor scored."""


class Diverged(ValueError):  # noqa: N818 (the name says what happened)
    """Raised when the loss is no longer finite."""


CURVE = "curve.json"
"""File in a checkpoint with the unfinished point of the loss curve."""


T5_SCHEDULE = {"held": True}
"""Value of ``lr_scheduler_kwargs`` for T5's schedule: inverse square root, constant during warm-up."""
SCHEDULES = {"constant": "constant_with_warmup", "t5": "inverse_sqrt"}
"""Names of schedules in transformers that differ from the names in settings."""


def training_arguments(training: TrainingSettings, run: Path, **intervals: Any) -> TrainingArguments:
    """Translate settings to those of transformers.

    Args:
        training: settings of training.
        run: folder of the run.
        **intervals: arguments that depend on the data, such as ``max_steps``.
    """
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    # Its new name is one that older releases of torch do not have.
    warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
    arguments = TrainingArguments(
        output_dir=str(run),
        report_to="none",
        gradient_accumulation_steps=training.accumulation,
        learning_rate=training.learning_rate,
        lr_scheduler_type=SCHEDULES.get(training.schedule, training.schedule),
        lr_scheduler_kwargs=T5_SCHEDULE if training.schedule == "t5" else None,
        warmup_steps=training.warmup,
        optim="adamw_torch_fused" if training.optimizer == "adam" else "adafactor",
        adam_beta1=training.beta1,
        adam_beta2=training.beta2,
        adam_epsilon=training.epsilon,
        weight_decay=training.weight_decay,
        max_grad_norm=training.clip,
        seed=training.seed,
        bf16=training.precision == "bf16",
        gradient_checkpointing=training.gradient_checkpointing,
        torch_compile=training.compile,
        dataloader_num_workers=training.workers,
        logging_steps=training.log_every,
        logging_nan_inf_filter=False,
        eval_strategy="steps",
        metric_for_best_model="loss",
        greater_is_better=False,
        restore_callback_states_from_checkpoint=True,  # otherwise patience would start again
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
        use_cache=True,  # otherwise the saved configuration would disable the cache
        ddp_find_unused_parameters=False,
        ddp_broadcast_buffers=False,  # all are constants, and frozen tables are large
        # The first process scores alone, while the others wait for it in the next run, if there is one.
        ddp_timeout=6 * 60 * 60,
        fsdp=training.shard or None,  # pyright: ignore[reportArgumentType] (its annotation is older than its meaning)
        fsdp_config=SHARDED if training.shard else None,
        average_tokens_across_devices=True,
        **intervals,
    )
    if arguments.n_gpu > 1:
        arguments._n_gpu = 1  # several need torchrun: one process for all is slow, and splits batches again
    return arguments


class SynthesizerTrainer(Trainer):
    """Trainer with batches by token count, in an order that depends only on the seed.

    Args:
        model: the model to train.
        args: ``TrainingArguments``.
        prepared: training and validation data, and the tokenizer that is saved with every checkpoint.
        batches: batches of the whole run.
        settings: settings of the run.
        **options: options of ``Trainer``.
    """

    def __init__(
        self,
        model: nn.Module,
        args: TrainingArguments,
        prepared: Prepared,
        batches: RunBatches,
        settings: Settings,
        **options: Any,
    ) -> None:
        inputs, validation = prepared.train, prepared.validation
        loss = self.smoothed_loss if args.label_smoothing_factor else None
        super().__init__(model, args, train_dataset=inputs, eval_dataset=validation, compute_loss_func=loss, **options)
        # Classifiers too: some batches of a step may have fewer labels, or none.
        self.model_accepts_loss_kwargs = True
        self.inputs, self.validation, self.tokenizer = inputs, validation, prepared.tokenizer
        self.batches, self.settings = batches, settings
        self.tokens = self.padded = 0

    def get_train_dataloader(self) -> DataLoader[Any]:
        # Not prepared by accelerate, which would split the batches again: each process already has its share.
        return DataLoader(
            self.inputs,
            batch_sampler=self.batches,  # pyright: ignore[reportArgumentType]
            collate_fn=self.inputs.collate,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory and self.args.device.type == "cuda",
        )

    @staticmethod
    def get_optimizer_cls_and_kwargs(args: Any, model: Any = None) -> tuple[Any, Any]:
        kind, options = Trainer.get_optimizer_cls_and_kwargs(args, model)
        if kind is Adafactor:
            # T5's learning rates are relative to the size of a parameter; the Trainer would use them as absolute.
            options |= {"scale_parameter": True, "relative_step": False, "warmup_init": False}
        return kind, options

    def create_scheduler(self, num_training_steps: int, optimizer: Optimizer | None = None) -> Any:
        if self.args.lr_scheduler_kwargs == T5_SCHEDULE and self.lr_scheduler is None:
            steps = max(1, self.args.get_warmup_steps(num_training_steps))
            chosen: Any = self.optimizer if optimizer is None else optimizer
            self.lr_scheduler = LambdaLR(chosen, lambda step: math.sqrt(steps / max(steps, step)))
            self._created_lr_scheduler = True
        return super().create_scheduler(num_training_steps, optimizer)

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Return the names of matrices; the Trainer would also decay single numbers such as alpha."""
        named = set(super().get_decay_parameter_names(model))
        # Weights of mixtures are left out, whatever their shape: no decay should pull them anywhere.
        weights = (module for module in model.modules() if isinstance(module, MixtureWeights))
        mixing = {id(parameter) for module in weights for parameter in module.parameters()}
        parameters = model.named_parameters()
        return [name for name, p in parameters if name in named and p.dim() > 1 and id(p) not in mixing]

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        mask = inputs["attention_mask"]
        self.tokens += int(mask.sum())
        self.padded += mask.numel()
        loss = super().training_step(model, inputs, num_items_in_batch)
        # Reading the loss would block an accelerator; there the next log entry detects divergence.
        if loss.device.type == "cpu" and not math.isfinite(float(loss)):
            raise Diverged(self._divergence(inputs, float(loss)))
        return loss

    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **options: Any) -> Any:
        bare = self.accelerator.unwrap_model(model)
        if self.compute_loss_func is not None and bare.config.is_encoder_decoder:
            # For a loss of one's own, the Trainer takes the labels away, which the decoder reads.
            inputs["decoder_input_ids"] = bare.prepare_decoder_input_ids_from_labels(inputs["labels"])
        return super().compute_loss(model, inputs, *args, **options)

    def smoothed_loss(self, outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
        """Return the loss of a batch as its share of a step: fused, and with the cost of halting."""
        config = self.accelerator.unwrap_model(self.model).config
        count = (labels != IGNORED).sum()
        items = count if num_items_in_batch is None else num_items_in_batch
        smoothing = self.args.label_smoothing_factor
        loss = smoothed_loss(outputs.logits, labels, smoothing, shifted=bool(config.is_decoder)) / items
        if getattr(outputs, "ponder_cost", None) is not None:
            loss = loss + config.ponder_weight * count / items * outputs.ponder_cost
        return loss

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        return 0  # not used, and the Trainer would count the parameters again in every step

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Return the validation loss in nats per token (or class), without label smoothing."""
        model = self.model
        assert isinstance(model, nn.Module)
        lengths = self.validation.lengths
        batches = RunBatches(
            TokenBatches(lengths, max(self.settings.evaluation.batch_tokens, int(lengths.max())), seed=None),
            0,
            self.args.process_index,
            self.args.world_size,
        )
        batches.count = len(batches.batches)
        model.eval()
        total = torch.zeros(2, dtype=torch.float64)
        with torch.no_grad():
            for keys in batches:
                batch = self._prepare_inputs(self.validation.collate([self.validation[key] for key in keys]))
                with self.compute_loss_context_manager():
                    count = (batch["labels"] != IGNORED).sum()
                    loss = model(**batch, num_items_in_batch=torch.ones((), device=count.device)).loss
                total += torch.tensor([float(loss), float(count)], dtype=torch.float64)
        total = self.over_processes(total)
        model.train()
        metrics = {"eval_loss": float(total[0] / total[1])}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if not math.isfinite(logs.get("loss", 0.0)):
            raise Diverged(f"the loss is {logs['loss']} at step {self.state.global_step}")
        super().log(logs, start_time)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        run = Path(str(self.args.output_dir))
        folder = run / f"{checkpoints.PREFIX}{self.state.global_step}"
        # Remove files from before an interruption: they must not mix with new ones.
        if self.args.should_save and folder.exists():
            checkpoints.remove(folder)
        self.accelerator.wait_for_everyone()
        with checkpoints.writing(f"a checkpoint at step {self.state.global_step}", run, folder):
            super()._save_checkpoint(model, trial)
            unlogged = float(self.over_processes(self._tr_loss)) / self.args.world_size
            self.accelerator.wait_for_everyone()
            if self.args.should_save:
                self.tokenizer.save_pretrained(folder)
                curve = {"loss": unlogged, "logged": self._globalstep_last_logged}
                write_text(folder / CURVE, json.dumps(curve))
                checkpoints.seal(folder)
        if self.args.should_save:
            training = self.settings.training
            best = self.state.best_global_step if training.keep == "best" else None
            checkpoints.prune(run, training.keep_checkpoints, best, self.state.save_steps, self.state.max_steps)  # pyright: ignore[reportArgumentType]

    def continue_curve(self, checkpoint: Path) -> None:
        """Continue a point of the loss curve that was begun before an interruption."""
        curve = json.loads((checkpoint / CURVE).read_text())
        self._tr_loss += curve["loss"]
        self._globalstep_last_logged = curve["logged"]

    def over_processes(self, values: Tensor) -> Tensor:
        """Return the sum over all processes."""
        if self.args.world_size == 1:
            return values
        return self.accelerator.reduce(values.clone().to(self.args.device))  # pyright: ignore[reportReturnType]

    def _divergence(self, inputs: dict[str, Any], loss: float) -> str:
        rows, width = inputs["input_ids"].shape
        return (
            f"the loss is {loss} at step {self.state.global_step + 1}, on a batch of {rows} examples of up to {width} "
            f"tokens; lower training.learning_rate (now {self.args.learning_rate:g}) or lengthen training.warmup"
        )


def smoothed_loss(logits: Tensor, labels: Tensor, smoothing: float, shifted: bool) -> Tensor:
    """Return the summed cross-entropy with smoothed labels; ``shifted``: a position predicts the next token."""
    if shifted:
        logits, labels = logits[:, :-1], labels[:, 1:]
    flat = logits.flatten(0, -2).float()
    return F.cross_entropy(flat, labels.flatten(), ignore_index=IGNORED, label_smoothing=smoothing, reduction="sum")
