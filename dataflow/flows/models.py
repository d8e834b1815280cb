"""List the tensors of well-known models (models.toml)."""

import tomllib
from pathlib import Path

from dataflow.errors import did_you_mean
from dataflow.flows.message import Field
from dataflow.units import parse_bytes

MODELS = tomllib.loads(Path(__file__).with_name("models.toml").read_text(encoding="utf-8"))


def model_fields(model: str, scale: float, lora_rank: int = 0) -> list[Field]:
    """Return the tensors of a model, or two adapter matrices per matrix of a layer. A size is one flat tensor.

    With a scale, the first dimension of each tensor is smaller.
    """
    if lora_rank and model not in MODELS:
        raise ValueError(f"--lora-rank: a --model of {model} has no matrices: leave it out")
    if model not in MODELS:
        try:
            items = round(parse_bytes(model) * scale) // 8
        except ValueError:
            raise ValueError(f"unknown --model {model}{did_you_mean(model, MODELS)}: give {', '.join(MODELS)}, or the "
                             "size of one flat tensor, such as 1GiB") from None  # fmt: skip
        if not items:
            raise ValueError(
                f"--model {model}: one flat tensor has at least 8 bytes: give {', '.join(MODELS)}, or more"
            )
        return [Field("flat", "int64", (items,), is_parameter=True)]
    shapes, layers = MODELS[model], range(MODELS[model]["layers"])
    lines = [] if lora_rank else list(shapes["once"])
    for layer in layers:
        lines += [f"{layer}.{line}" for line in shapes["layer"]]
        lines += [f"{layer}.{expert}.{line}" for expert in range(shapes.get("experts", 0)) for line in shapes["expert"]]
    fields = []
    for line in lines:
        name, first, *rest = line.split()
        rows, columns = max(1, round(int(first) * scale)), [*map(int, rest)]
        if not lora_rank:
            fields.append(Field(name, shapes["dtype"], (rows, *columns), is_parameter=True))
        elif columns:
            fields.append(Field(f"{name}.lora_A", shapes["dtype"], (lora_rank, *columns), is_parameter=True))
            fields.append(Field(f"{name}.lora_B", shapes["dtype"], (rows, lora_rank), is_parameter=True))
    return fields
