"""The list of mistakes that tests must catch follows the code."""

import pytest
from tools.mutations import MUTATIONS, ROOT, Mutation


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_changes_one_place_and_names_tests_that_exist(mutation: Mutation):
    assert (ROOT / mutation.file).read_text(encoding="utf-8").count(mutation.right) == 1
    assert mutation.right != mutation.wrong
    assert [path for path in mutation.tests.split() if not (ROOT / path).exists()] == []
