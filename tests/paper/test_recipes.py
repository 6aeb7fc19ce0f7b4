"""Recipes are whole: every row of every table can be built, and the paper's sizes are those that it prints."""

import functools

import pytest
import torch

from synthattn.compare.plan import plan
from synthattn.models.describe import MODELS
from synthattn.paper.cost import Cost, config, costs
from synthattn.paper.recipes import RATES, TABLES, recipe
from synthattn.tasks import SUITES, find_task
from synthattn.training.model import MODEL_OF

pytestmark = pytest.mark.unchecked


@functools.cache
def paper_costs(table: str) -> list[Cost]:
    """Estimate costs at the paper's scale; every model is made on the meta device."""
    return list(costs(recipe(table, "paper")))


@pytest.mark.parametrize("scale", ["tiny", "cpu"])
@pytest.mark.parametrize("table", TABLES)
def test_every_row_can_be_built(table, scale):
    """Rows of the paper's scale are built when their cost is estimated."""
    chosen = recipe(table, scale)
    for part in chosen.parts:
        task = part.settings.data.task
        kind = find_task(SUITES[task][0] if task in SUITES else task).kind
        names = [row.key for row in part.rows]
        assert len(set(names)) == len(names)
        assert part.rate_of is None or chosen.part(part.rate_of).rates or not RATES[scale]
        for row in part.rows:
            if not row.trained:
                continue
            with torch.device("meta"):
                model = MODELS[MODEL_OF[kind]](config(chosen, part, row))
            specs = {str(spec) for spec in model.config.layer_specs("encoder") + model.config.layer_specs("decoder")}
            assert specs == {row.attention}


@pytest.mark.parametrize("table", TABLES)
def test_the_cost_of_the_papers_scale_is_known(table):
    found = paper_costs(table)
    assert len(found) == sum(row.trained for part in recipe(table, "paper").parts for row in part.rows)
    for one in found:
        assert one.parameters > 1e5
        assert 0 < one.hours < 1e5, one


def test_sizes_are_those_that_the_paper_prints():
    found = {one.row: one.parameters / 1e6 for one in paper_costs("c4")}
    printed = {"Transformer": 223, "Syn (D)": 224, "Syn (R)": 254, "Syn (R+V)": 292, "Syn (D+V)": 243, "Syn (FR)": 207}
    for row, millions in printed.items():
        # Theirs counts no positions, ours 0.8 million.
        assert found[row] == pytest.approx(millions, abs=1.5), row


def test_hours_grow_with_the_work():
    """An independent estimate: six operations for every parameter and token; the output matrix is the embedding."""
    found = {(one.part, one.row): one for one in paper_costs("translation")}
    one = found["en-de", "Transformer"]
    expected = 6 * one.parameters * one.tokens / 1e18
    assert one.exaflop == pytest.approx(expected, rel=0.5)
    assert one.hours == pytest.approx(one.exaflop * 1e18 / (312e12 * 0.4) / 3600)


def test_every_row_once_comes_before_further_seeds():
    chosen = recipe("translation", "cpu")
    found = list(plan(chosen))
    seeds = [job.seed for job in found]
    assert seeds == sorted(seeds)
    tried = [job for job in found if job.rate is not None]
    assert found[: len(tried)] == tried
    count = {
        name: sum(job.row.name == name and job.rate is None for job in found) for name in ("Random", "Fixed Random")
    }
    assert count == {"Random": 4, "Fixed Random": 1}  # three seeds to German, one to French


def test_chosen_rows_bring_what_they_are_compared_with():
    found = list(plan(recipe("encoding", "cpu"), ["linformer"], seeds=2))
    seeds = {}
    for job in found:
        if job.rate is None and job.part.name == "imdb":
            seeds.setdefault(job.row.name, []).append(job.seed)
    assert seeds == {"Transformer": [0, 1], "Linformer": [0, 1], "One answer for all": [0]}
