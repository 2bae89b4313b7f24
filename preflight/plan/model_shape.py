"""Read a Hugging Face config.json, as far as the memory of activations depends on it."""

from __future__ import annotations

import json
from typing import Any

from preflight.errors import MalformedInput
from preflight.model.fit import ModelShape

MOST_CHARACTERS = 1 << 20  # real ones have some kilobytes
NESTED = ("text_config", "llm_config", "language_config")  # where a model of several parts keeps its language model
# The names that architectures give to the same number, and the most that any model could mean by it.
HIDDEN = (("hidden_size", "n_embd", "d_model", "dim"), 1 << 20)
LAYERS = (("num_hidden_layers", "n_layer", "num_layers", "n_layers"), 10_000)
INTERMEDIATE = (("intermediate_size", "n_inner", "ffn_dim", "d_ff", "ffn_hidden_size"), 1 << 24)
VOCABULARY = (("vocab_size", "padded_vocab_size"), 1 << 24)
CLASSIC_WIDENING = 4  # of the feed-forward, where a config names none


def parse_model_shape(text: str, where: str) -> ModelShape:
    """Return the shape that a config.json gives; MalformedInput, with `where` it came from, says what is missing."""
    if len(text) > MOST_CHARACTERS:
        raise MalformedInput(f"{where}: larger than 1 MiB, which no model's config.json is")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise MalformedInput(f"{where}: not JSON; give the model's config.json") from None
    if not isinstance(document, dict):
        raise MalformedInput(f"{where}: not a JSON object; give the model's config.json")
    nested = (document[name] for name in NESTED if isinstance(document.get(name), dict))
    config = {**document, **next(nested, {})}
    hidden = _number(config, HIDDEN, where)
    return ModelShape(
        hidden_size=hidden,
        layers=_number(config, LAYERS, where),
        intermediate_size=_number(config, INTERMEDIATE, where, default=CLASSIC_WIDENING * hidden),
        vocab_size=_number(config, VOCABULARY, where),
    )


def _number(config: dict[str, Any], key: tuple[tuple[str, ...], int], where: str, default: int | None = None) -> int:
    names, most = key
    for name in names:
        value = config.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= most:
            raise MalformedInput(f"{where}: {name} is {str(value)[:40]!r}, not a whole number from 1 to {most}")
        return value
    if default is not None:
        return default
    raise MalformedInput(f"{where}: there is no {' or '.join(names)}; give the config.json of a transformer")
