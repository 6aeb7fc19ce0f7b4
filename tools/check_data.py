"""Check a folder of well-known data sets, each for its usual task: ``check_data.py FOLDER``.

Missing data sets are skipped. The script prints a line per data set: splits, examples, and numbers of complaints.
"""

import sys
from pathlib import Path

from synthattn.data.holdout import HeldOut
from synthattn.data.open import open_source, parse_columns
from synthattn.tasks import find_task
from synthattn.tasks.report import Report, examine

# Folders with their tasks and columns.
SETS = [
    ("multi30k", "translation", "source=en,target=de"),
    ("wmt14_mini_en_de", "translation", ""),
    ("wmt14_mini_en_fr", "translation", ""),
    ("tatoeba_en_de", "translation", ""),
    ("ptb", "language-modeling", ""),
    ("wikitext2", "language-modeling", ""),
    ("news_lm", "sentence-modeling", ""),
    ("lm1b_sample", "sentence-modeling", ""),
    ("ag_news", "classification", "label=0,text=1"),
    ("movie_reviews_mr", "classification", ""),
    ("sst2_sentences", "classification", ""),
    ("imdb", "classification", ""),
    ("listops", "listops", ""),
    ("gigaword", "summarization", ""),
    ("cnn_dailymail", "summarization", ""),
    ("xsum", "summarization", ""),
    ("personachat", "dialogue", ""),
    ("dailydialog", "dialogue-turns", ""),
    ("glue/CoLA", "cola", ""),
    ("glue/SST-2", "sst2", ""),
    ("glue/MRPC", "mrpc", ""),
    ("glue/STS-B", "stsb", ""),
    ("glue/QQP", "qqp", ""),
    ("glue/MNLI", "mnli", ""),
    ("glue/SNLI", "mnli", ""),
    ("glue/QNLI", "qnli", ""),
    ("glue/RTE", "rte", ""),
    ("glue/WNLI", "wnli", ""),
    ("superglue/BoolQ", "boolq", ""),
    ("superglue/CB", "cb", ""),
    ("superglue/COPA", "copa", ""),
    ("superglue/MultiRC", "multirc", ""),
    ("superglue/ReCoRD", "record", ""),
    ("superglue/RTE", "superglue-rte", ""),
    ("superglue/WiC", "wic", ""),
    ("superglue/WSC", "wsc", ""),
]


def look_at(folder: Path, task: str, columns: str) -> Report:
    source = open_source(str(folder), parse_columns(columns))
    return examine(HeldOut(source), find_task(task), tokenizer="bytes", vocab_size=4000)


def main(root: Path) -> int:
    failed = 0
    for name, task, columns in SETS:
        if not (root / name).is_dir():
            continue
        try:
            report = look_at(root / name, task, columns)
        except ValueError as error:
            failed += 1
            print(f"{name:20}{task:20}FAILED: {error}", flush=True)
            continue
        splits = ", ".join(f"{split.name} {split.examples:,}" for split in report.splits)
        unusable = sum(split.problems for split in report.splits)
        print(f"{name:20}{task:20}{splits}; {unusable} unusable, {len(report.complaints)} remarks", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        sys.exit("usage: check_data.py FOLDER")
    sys.exit(main(Path(sys.argv[1])))
