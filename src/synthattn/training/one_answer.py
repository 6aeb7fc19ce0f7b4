"""What whoever gives the same answer to every question scores: a model that is not above it has learned nothing."""

import itertools
import time
from collections import Counter
from collections.abc import Sequence

from synthattn.tasks.encoding import examples
from synthattn.training.evaluation import Evaluation, merged, score
from synthattn.training.prepare import Part
from synthattn.training.settings import EvaluationSettings


def says_something(parts: Sequence[Part]) -> bool:
    """Whether the score of one answer is worth knowing: that of one sentence for all translations is not."""
    return all(part.task.chooses for part in parts)


def one_answer(parts: Sequence[Part], settings: EvaluationSettings) -> Evaluation:
    """Score, for each task, the answer that is the most frequent in training; of equally frequent ones, the first."""
    started = time.monotonic()
    result = Evaluation({})
    groups = {}
    for part in parts:
        answer = _most_frequent(part)
        for name, split in part.evaluation_splits(settings.split).items():
            asked = list(itertools.islice(examples(part.task, part.source, split), settings.limit))
            said = [part.task.parse(answer, example) for example in asked]
            groups[name] = score(part.task.metrics(), said, asked)
            result.splits[name] = split
            result.examples += len(asked)
    result.scored = merged(groups)
    result.seconds = time.monotonic() - started
    return result


def _most_frequent(part: Part) -> str:
    counts = Counter(example.target for example in examples(part.task, part.source, "train", training=True))
    if not counts:
        raise ValueError(f"{part.source.name}: no example is left to learn from")
    return counts.most_common(1)[0][0]
