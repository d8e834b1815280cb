"""The tensors of known models."""

import pytest

from dataflow.flows.models import MODELS, model_fields

# Numbers of tensors and bytes of the published checkpoints: model.safetensors.index.json, or the sum over the layers.
KNOWN = {
    "gpt2": (148, 497_759_232),
    "bert-base": (199, 437_928_960),
    "opt-350m": (388, 662_392_832),
    "qwen2.5-0.5b": (290, 988_065_536),
    "qwen2.5-7b": (339, 15_231_233_024),
    "qwen3-30b-a3b": (18_867, 61_064_245_248),
}


@pytest.mark.parametrize("model", MODELS)
def test_a_model_has_the_tensors_and_bytes_of_its_checkpoint(model):
    fields = model_fields(model, 1)
    assert (len(fields), sum(field.bytes for field in fields)) == KNOWN[model]
