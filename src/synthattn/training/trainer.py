"""The Trainer of transformers with batches by token count, smoothed loss and sealed checkpoints."""

import json
import math
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader
from transformers import Adafactor, Trainer

from synthattn.data.batching import TokenBatches
from synthattn.saved_file import write_text
from synthattn.synthesizers.mixture import SigmoidWeights, SoftmaxWeights
from synthattn.tasks.inputs import IGNORED, Inputs, RunBatches
from synthattn.training import checkpoints


class Diverged(ValueError):  # noqa: N818 (the name says what happened)
    """Raised when the loss is no longer finite."""


CURVE = "curve.json"
"""File in a checkpoint with the unfinished point of the loss curve."""


T5_SCHEDULE = {"held": True}
"""Value of ``lr_scheduler_kwargs`` for T5's schedule: inverse square root, constant during warm-up."""


class SynthesizerTrainer(Trainer):
    """Trainer with batches by token count, in an order that depends only on the seed.

    Args:
        model: the model to train.
        args: ``TrainingArguments``.
        inputs: training examples.
        batches: batches of the whole run.
        validation: examples for the validation loss.
        tokenizer: tokenizer that is saved with every checkpoint.
        evaluation_tokens: maximum number of tokens in a validation batch.
        label_smoothing: share of probability spread over all classes.
        keep: number of checkpoints that are kept.
        keep_best: also keep the best checkpoint.
        **options: options of ``Trainer``.
    """

    def __init__(
        self,
        model: nn.Module,
        args: Any,
        inputs: Inputs,
        batches: RunBatches,
        validation: Inputs,
        tokenizer: Any,
        evaluation_tokens: int,
        label_smoothing: float,
        keep: int,
        keep_best: bool,
        **options: Any,
    ) -> None:
        super().__init__(model=model, args=args, train_dataset=inputs, eval_dataset=validation, **options)
        # Classifiers too: some batches of a step may have fewer labels, or none.
        self.model_accepts_loss_kwargs = True
        self.inputs, self.batches, self.validation = inputs, batches, validation
        self.tokenizer = tokenizer
        self.evaluation_tokens, self.label_smoothing = evaluation_tokens, label_smoothing
        self.keep, self.keep_best = keep, keep_best
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
        weights = (module for module in model.modules() if isinstance(module, SigmoidWeights | SoftmaxWeights))
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

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        if not self.label_smoothing:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        labels = inputs["labels"]
        given = {name: value for name, value in inputs.items() if name != "labels"}
        bare = self.accelerator.unwrap_model(model)
        if bare.config.is_encoder_decoder:
            given["decoder_input_ids"] = bare.prepare_decoder_input_ids_from_labels(labels)
        outputs = model(**given)
        items = (labels != IGNORED).sum() if num_items_in_batch is None else num_items_in_batch
        loss = smoothed_loss(outputs.logits, labels, self.label_smoothing, shifted=bool(bare.config.is_decoder)) / items
        if getattr(outputs, "ponder_cost", None) is not None:
            loss = loss + bare.config.ponder_weight * (labels != IGNORED).sum() / items * outputs.ponder_cost
        if num_items_in_batch is not None:
            loss = loss * self.accelerator.num_processes  # gradients are averaged over all processes
        return (loss, outputs) if return_outputs else loss

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        return 0  # not used, and the Trainer would count the parameters again in every step

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Return the validation loss in nats per token (or class), without label smoothing."""
        model = self.model
        assert isinstance(model, nn.Module)
        lengths = self.validation.lengths
        batches = RunBatches(
            TokenBatches(lengths, max(self.evaluation_tokens, int(lengths.max())), seed=None),
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
            best = self.state.best_global_step if self.keep_best else None
            checkpoints.prune(run, self.keep, best, self.state.save_steps, self.state.max_steps)  # pyright: ignore[reportArgumentType]

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
