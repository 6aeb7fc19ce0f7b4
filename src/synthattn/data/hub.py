"""Data sets of the Hugging Face hub, read with the package ``datasets``."""

import importlib
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from synthattn.data.files import languages_apart
from synthattn.data.folder import arrange
from synthattn.data.source import Record, Source, fingerprint_of
from synthattn.messages import suggestion

T = TypeVar("T")

CANONICAL = {
    "ag_news": "fancyzhx/ag_news",
    "c4": "allenai/c4",
    "cnn_dailymail": "abisee/cnn_dailymail",
    "daily_dialog": "li2017dailydialog/daily_dialog",
    "gigaword": "Harvard/gigaword",
    "glue": "nyu-mll/glue",
    "imdb": "stanfordnlp/imdb",
    "lm1b": "billion-word-benchmark/lm1b",
    "multi_nli": "nyu-mll/multi_nli",
    "ptb_text_only": "ptb-text-only/ptb_text_only",
    "rotten_tomatoes": "cornell-movie-review-data/rotten_tomatoes",
    "snli": "stanfordnlp/snli",
    "sst2": "stanfordnlp/sst2",
    "super_glue": "aps/super_glue",
    "wikitext": "Salesforce/wikitext",
    "wmt14": "wmt/wmt14",
    "xsum": "EdinburghNLP/xsum",
}
"""Owners of data sets that are known by one word. Before a slash, any other word is an owner."""

CONFIGS = {"allenai/c4": "en", "abisee/cnn_dailymail": "3.0.0", "bavard/personachat_truecased": "full"}
"""Default configurations of data sets that have several."""

STREAMED = frozenset(
    {"allenai/c4", "allenai/dolma", "HuggingFaceFW/fineweb", "Skylion007/openwebtext", "uonlp/CulturaX"}
)
"""Data sets too large to store: they are read from the network, again in every epoch."""

_PARQUET = "refs/convert/parquet"


def parse_hub_name(text: str) -> tuple[str, str | None]:
    """Return the path of a data set on the hub, and its configuration.

    The text is ``NAME``, ``NAME/CONFIG``, ``OWNER/NAME`` or ``OWNER/NAME/CONFIG``. ``wmt14/de-en`` is a name and a
    configuration, because ``wmt14`` is in the table of names that need no owner; ``allenai/c4`` is an owner and a name.
    """
    words = text.split("/")
    if not all(words) or len(words) > 3:
        raise ValueError(f"hub:{text} is no name; write hub:NAME, hub:NAME/CONFIG, hub:OWNER/NAME/CONFIG")
    canonical = CANONICAL.get(words[0])
    if canonical and len(words) < 3:
        path, rest = canonical, words[1:]
    else:
        path, rest = "/".join(words[:2]), words[2:]
    return path, rest[0] if rest else CONFIGS.get(path)


class HubSource(Source):
    """A data set of the hub. Its column ``translation`` becomes one field per language.

    Args:
        text: the name, with or without ``hub:``; see ``parse_hub_name``.
    """

    def __init__(self, text: str) -> None:
        text = text.removeprefix("hub:")
        super().__init__(f"hub:{text}")
        self.path, self.config = parse_hub_name(text)
        self._datasets: Any = _datasets(self.name)
        self._options: dict[str, Any] = {}
        own = self._try(self._split_names)
        self._own, notes = arrange(dict.fromkeys(own, ""))
        self.splits = tuple(self._own)
        for note in notes:
            self.note(note)
        if self.path in STREAMED:
            self.note(f"{self.name}: read from the network, not stored")

    def fingerprint(self) -> str:
        """Hash the name and the revision that ``datasets`` reports: the data may be too large to read."""
        builder = self._try(lambda: self._datasets.load_dataset_builder(self.path, self.config, **self._options))
        state = self.path, self.config, self._options, str(getattr(builder, "hash", "")), str(builder.info.version)
        return fingerprint_of(*state)

    def records(self, split: str) -> Iterator[Record]:
        own = self._own[split]
        options = {"split": own, "streaming": self.path in STREAMED, **self._options}
        rows = self._try(lambda: iter(self._datasets.load_dataset(self.path, self.config, **options)))
        number = 0
        while (row := self._try(lambda: next(rows, None))) is not None:
            number += 1
            yield Record(languages_apart(row), f"{self.name}, {own}, record {number}")

    def _split_names(self) -> list[str]:
        try:
            return list(self._datasets.get_dataset_split_names(self.path, self.config, **self._options))
        except RuntimeError as error:
            # Old data sets are scripts, which datasets no longer runs. The hub keeps the output of most of them.
            if "script" not in str(error).lower() or self._options:
                raise
            self._options = {"revision": _PARQUET}
            self.note(f"{self.name}: the hub's conversion to Parquet is read")
            return self._split_names()

    def _try(self, load: Callable[[], T]) -> T:
        """Run a function that needs the hub, and turn any error into one line."""
        try:
            return load()
        except Exception as error:
            names = {cls.__name__ for cls in type(error).__mro__}
            if "DatasetNotFoundError" in names:
                raise ValueError(
                    f"{self.name}: there is no data set {self.path} on the hub, or it is private"
                    "; look at its page for the name"
                ) from None
            if isinstance(error, ConnectionError | TimeoutError) or any(
                word in name for name in names for word in ("Connect", "Offline", "Timeout", "LocalEntryNotFound")
            ):
                raise ValueError(f"{self.name}: {_no_network()}") from None
            what = " ".join(str(error).split())[:200] or type(error).__name__
            raise ValueError(self._wrong_config(error) or f"{self.name} cannot be loaded: {what}") from None

    def _wrong_config(self, error: Exception) -> str:
        """Return a message with the known configurations if the error is about one; else an empty text."""
        if not isinstance(error, ValueError) or "config" not in str(error).lower():
            return ""
        try:
            names = list(self._datasets.get_dataset_config_names(self.path, **self._options))
        except Exception:
            # The first error is more useful than this one.
            return ""
        config = self.config
        if config is None and len(names) > 1:
            return f"{self.name} has several configurations; write {self.name}/CONFIG with one of {', '.join(names)}"
        if config is not None and config not in names:
            return f"{self.name}: there is no configuration {config!r}{suggestion(config, names)}"
        return ""


def _datasets(name: str) -> Any:
    try:
        return importlib.import_module("datasets")
    except ImportError:
        raise ValueError(f"{name} needs the package datasets: pip install 'synthattn[hub]'") from None


def _no_network() -> str:
    if os.environ.get("HF_HUB_OFFLINE", "0").lower() in ("1", "true", "yes", "on"):
        return "not in the cache, and HF_HUB_OFFLINE is set; unset it to download"
    return "the hub cannot be reached; connect to the network, or set HF_HUB_OFFLINE=1 to use what is in the cache"
