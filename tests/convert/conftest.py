"""What tests of conversions share."""

import pytest
import transformers

from synthattn.convert import replace


@pytest.fixture(autouse=True)
def quiet_transformers():
    """Keep progress bars and notes about small vocabularies out of the output."""
    transformers.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()


@pytest.fixture(autouse=True)
def no_search_for_optimizers(request, monkeypatch):
    """Leave out the search for optimizers, which takes half a second, where it is not tested."""
    if "optimizer" not in request.node.name:
        monkeypatch.setattr(replace, "watch_optimizers", lambda model: None)
