"""Metrics, each with an exact definition of its score."""

from synthattn.metrics.base import Metric, MetricValue, Rows
from synthattn.metrics.bleu import Bleu, BleuN, ChrF, TokenizedBleu
from synthattn.metrics.cider import CiderD
from synthattn.metrics.classification import F1, Accuracy, MacroF1, Matthews
from synthattn.metrics.correlation import Pearson, Spearman
from synthattn.metrics.embedding import EmbeddingSimilarity
from synthattn.metrics.meteor import Meteor
from synthattn.metrics.perplexity import BitsPerByte, Perplexity
from synthattn.metrics.rouge import Rouge
from synthattn.metrics.superglue import MultiRcExactMatch, MultiRcF1, ReCoRDExactMatch, ReCoRDF1
from synthattn.metrics.vectors import load_vectors

__all__ = [
    "F1",
    "Accuracy",
    "BitsPerByte",
    "Bleu",
    "BleuN",
    "ChrF",
    "CiderD",
    "EmbeddingSimilarity",
    "MacroF1",
    "Matthews",
    "Meteor",
    "Metric",
    "MetricValue",
    "MultiRcExactMatch",
    "MultiRcF1",
    "Pearson",
    "Perplexity",
    "ReCoRDExactMatch",
    "ReCoRDF1",
    "Rouge",
    "Rows",
    "Spearman",
    "TokenizedBleu",
    "load_vectors",
]
