"""The Trainer of transformers with our batches, our loss, and checkpoints that are whole or are not used."""

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
from synthattn.synthesizers.mixture import SigmoidWeights, SoftmaxWeights
from synthattn.tasks.inputs import IGNORED, Inputs, RunBatches
from synthattn.training import checkpoints


class Diverged(ValueError):  # noqa: N818 (it says what happened)
    """The loss is no longer a number."""


CURVE = "curve.json"
"""In a checkpoint: what belongs to the next point of the loss curve."""


HELD = {"held": True}
"""For ``lr_scheduler_kwargs``: the inverse square root, held at its height where it would else rise, as in T5."""


class SynthesizerTrainer(Trainer):
    """Batches by number of tokens, in an order that depends on the seed alone.

    Args:
        model: what learns.
        args: ``TrainingArguments``.
        inputs: what it learns from.
        batches: in which batches.
        validation: what the validation loss is computed from.
        tokenizer: is saved with every checkpoint.
        evaluation_tokens: in a batch of these.
        label_smoothing: share of the probability that goes to all classes alike.
        keep: how many checkpoints are kept.
        keep_best: whether the best one is kept besides.
        **options: as for ``Trainer``.
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
        # Also classifiers, here: their labels are classes, of which some batches of a step may have fewer, or none.
        self.model_accepts_loss_kwargs = True
        self.inputs, self.batches, self.validation = inputs, batches, validation
        self.tokenizer = tokenizer
        self.evaluation_tokens, self.label_smoothing = evaluation_tokens, label_smoothing
        self.keep, self.keep_best = keep, keep_best
        self.tokens = self.padded = 0

    def get_train_dataloader(self) -> DataLoader[Any]:
        # Not prepared by accelerate, which would split the batches in its own way: each process has its share already.
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
            # The Trainer's own would take T5's rates, which are relative to the size of a parameter, for absolute ones.
            options |= {"scale_parameter": True, "relative_step": False, "warmup_init": False}
        return kind, options

    def create_scheduler(self, num_training_steps: int, optimizer: Optimizer | None = None) -> Any:
        if self.args.lr_scheduler_kwargs == HELD and self.lr_scheduler is None:
            steps = max(1, self.args.get_warmup_steps(num_training_steps))
            chosen: Any = self.optimizer if optimizer is None else optimizer
            self.lr_scheduler = LambdaLR(chosen, lambda step: math.sqrt(steps / max(steps, step)))
            self._created_lr_scheduler = True
        return super().create_scheduler(num_training_steps, optimizer)

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Of matrices only: the Trainer goes by names, and would also decay a single number that is called alpha."""
        named = set(super().get_decay_parameter_names(model))
        # A few numbers for each head, whatever their shape: how much a term weighs is not to be pulled anywhere.
        weights = (module for module in model.modules() if isinstance(module, SigmoidWeights | SoftmaxWeights))
        mixing = {id(parameter) for module in weights for parameter in module.parameters()}
        parameters = model.named_parameters()
        return [name for name, p in parameters if name in named and p.dim() > 1 and id(p) not in mixing]

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        mask = inputs["attention_mask"]
        self.tokens += int(mask.sum())
        self.padded += mask.numel()
        loss = super().training_step(model, inputs, num_items_in_batch)
        # Elsewhere than on a CPU a look at the loss would wait for it; there the next line of the log tells.
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
        loss = smoothed_loss(outputs.logits, labels, self.label_smoothing, shifted=self._shifts(bare)) / items
        if getattr(outputs, "ponder_cost", None) is not None:
            loss = loss + bare.config.ponder_weight * (labels != IGNORED).sum() / items * outputs.ponder_cost
        if num_items_in_batch is not None:
            loss = loss * self.accelerator.num_processes  # the gradients of all processes are averaged
        return (loss, outputs) if return_outputs else loss

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        return 0  # nobody reads them, and the Trainer would count the parameters anew in every step

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """The validation loss, in nats per token (or class), without label smoothing."""
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
        # Left over from before an interruption: what is written now must not mix with it.
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
                checkpoints.write_text(folder / CURVE, json.dumps(curve))
                checkpoints.seal(folder)
        if self.args.should_save:
            best = self.state.best_global_step if self.keep_best else None
            checkpoints.prune(run, self.keep, best, self.state.save_steps, self.state.max_steps)  # pyright: ignore[reportArgumentType]

    def continue_curve(self, checkpoint: Path) -> None:
        """Go on with a point of the loss curve that was begun before an interruption."""
        curve = json.loads((checkpoint / CURVE).read_text())
        self._tr_loss += curve["loss"]
        self._globalstep_last_logged = curve["logged"]

    def over_processes(self, values: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.args.world_size == 1:
            return values
        return self.accelerator.reduce(values.clone().to(self.args.device))  # pyright: ignore[reportReturnType]

    def _shifts(self, model: Any) -> bool:
        return bool(model.config.is_decoder)

    def _divergence(self, inputs: dict[str, Any], loss: float) -> str:
        rows, width = inputs["input_ids"].shape
        return (
            f"the loss is {loss} at step {self.state.global_step + 1}, on a batch of {rows} examples of up to {width} "
            f"tokens; lower training.learning_rate (now {self.args.learning_rate:g}) or lengthen training.warmup"
        )


def smoothed_loss(logits: Tensor, labels: Tensor, smoothing: float, shifted: bool) -> Tensor:
    """The sum over places of the cross-entropy with smoothed labels; ``shifted``: a place predicts the next token."""
    if shifted:
        logits, labels = logits[:, :-1], labels[:, 1:]
    flat = logits.flatten(0, -2).float()
    return F.cross_entropy(flat, labels.flatten(), ignore_index=IGNORED, label_smoothing=smoothing, reduction="sum")
