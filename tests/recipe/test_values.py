"""Fields of a recipe say their type, choices and range; the code that acts on a choice knows the same ones."""

import dataclasses
import tomllib
from typing import get_args, get_type_hints

import pytest

from realm.errors import ConfigError
from realm.recipe import PretrainConfig, Recipe, build_recipe
from realm.recipe.values import read_value
from realm.training.pretrain.score import LIKELIHOODS


@pytest.mark.parametrize("section", [field.name for field in dataclasses.fields(Recipe)])
def test_every_default_is_allowed(section):
    values = getattr(Recipe(), section)
    for key, hint in get_type_hints(type(values), include_extras=True).items():
        value = getattr(values, key)
        assert read_value(hint, value, f"{section}.{key}", None) == value


def test_choices_are_those_that_the_code_knows():
    assert set(get_args(get_type_hints(PretrainConfig)["marginal"])) == set(LIKELIHOODS)


@pytest.mark.parametrize(("text", "message"), [
    ("[run]\nseed = true", "'run.seed' cannot be True. It is a whole number."),
    ("[eval]\nk = [5, 0]", "'eval.k' is [5, 0]. It is one number or more, and each is at least 1."),
    ("[pretrain]\nbatch = 0", "'pretrain.batch' is 0. It is at least 1."),
    ("[corpus]\ndocument_seconds = 0", "'corpus.document_seconds' is 0. It is above 0 and at most 86400."),
    ("[model]\ndropout = 1.01", "'model.dropout' is 1.01. It is between 0 and 1."),
    ("[corpus]\nsources = 1979-05-27", "'corpus.sources' cannot be datetime.date(1979, 5, 27). It is a list."),
])  # fmt: skip
def test_what_does_not_fit_has_its_cure(text, message):
    with pytest.raises(ConfigError) as caught:
        build_recipe(tomllib.loads(text))
    assert str(caught.value) == message
