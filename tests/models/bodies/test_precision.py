"""bfloat16 only where the hardware multiplies it."""

import pytest
import torch

from realm.models.bodies.precision import has_bf16


@pytest.mark.parametrize(("capabilities", "has"), [
    ({"avx2": True, "avx512_bf16": False, "amx_bf16": False, "cpu_name": "bf16"}, False),
    ({"avx2": True, "avx512_bf16": True, "amx_bf16": False, "l2_cache_size": 1048576}, True),
    ({"avx512_bf16": False, "amx_bf16": True}, True), ({"neon": True, "bf16": True}, True), ({}, False),
])  # fmt: skip
def test_a_cpu_has_it_when_one_of_its_extensions_does(capabilities, has, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert has_bf16("cpu") is has
