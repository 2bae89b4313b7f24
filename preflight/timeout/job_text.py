"""Parse the user's description of the job: model sizes, durations, shares and counts.

All functions raise only UsageError.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from preflight.errors import MalformedInput
from preflight.model.fit import ModelShape
from preflight.model.input_limits import MODEL_CONFIG, RUN_RECORD, parse_json
from preflight.model.job import ParamCount
from preflight.model.job_phases import START, Phase, Silence
from preflight.model.parsing import NUMBER, wrong

PLAIN = re.compile(r"\d{1,3}(?:[_,]\d{3}){1,5}|\d{4,15}|\d{1,3}(?:\.\d{1,6})?e\+?\d{1,2}", re.ASCII | re.IGNORECASE)
SCALE = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
COUNT = re.compile(NUMBER + r"([KMBT])", re.ASCII | re.IGNORECASE)
EXPERTS = re.compile(r"(\d{1,4})x" + NUMBER + r"([KMBT])", re.ASCII | re.IGNORECASE)
SHARE = re.compile(NUMBER + "%", re.ASCII)
WHOLE = re.compile(r"\d{1,9}", re.ASCII)
FEWEST, MOST = 1000, 10**14  # parameters


def parse_params(text: str) -> ParamCount:
    """Return the number of parameters in a text such as `7B`, `1.5B`, `7e9`, `7_000_000_000` or `47B/13B`.

    `47B/13B` means 47B parameters in total and 13B active parameters per token.
    """
    # `8x7B` counts as eight full models, which is the maximum size, and all parameters count as active.
    total_text, slash, active_text = text.strip().partition("/")
    total = _count(total_text, text)
    active = _count(active_text, text) if slash else total
    if active > total:
        raise wrong("--params", text, "more active parameters than there are: write all of them first, as in 47B/13B")
    return ParamCount(total, active)


def is_upper_bound(text: str) -> bool:
    """Return whether `text` has the form `8x7B`, which gives only the maximum size of the model."""
    return "x" in text.lower()


def parse_lora_share(text: str) -> float:
    """Return the trained share of the parameters, such as 0.005 for `0.5%`.

    The text has the form that PEFT prints.
    """
    found = SHARE.fullmatch(text.strip())
    if not found:
        in_percent = "write the trained share in percent, with %: 0.5%, as print_trainable_parameters() prints it"
        raise wrong("--lora", text, in_percent)
    share = Decimal(found[1]) / 100
    if not 0 < share <= 1:
        raise wrong("--lora", text, "give a share above 0% and up to 100%")
    return float(share)


def parse_count(text: str, option: str, most: int) -> int:
    """Return the integer in `text`, the value of `option`. Raise UsageError unless the integer is from 1 to `most`."""
    found = WHOLE.fullmatch(text.strip())
    if not found or not 0 < int(found[0]) <= most:
        raise wrong(option, text, f"give a whole number from 1 to {most}")
    return int(found[0])


def _count(typed: str, text: str) -> int:
    joined = "".join(typed.split())
    experts, plain = EXPERTS.fullmatch(joined), COUNT.fullmatch(joined)
    if PLAIN.fullmatch(joined):
        count = Decimal(re.sub("[_,]", "", joined))
    elif experts:
        count = int(experts[1]) * Decimal(experts[2]) * SCALE[experts[3].upper()]
    elif plain:
        count = Decimal(plain[1]) * SCALE[plain[2].upper()]
    else:
        raise wrong("--params", text, "not a model size: write 7B, 1.5B, 7e9, or 47B/13B for a mixture of experts")
    if not FEWEST <= count <= MOST:
        raise wrong("--params", text, "give 1K to 100T parameters")
    return int(count)


LONGEST_PHASE_S = 366 * 86400.0


def parse_run_record(text: str, where: str) -> tuple[Silence, ...]:
    """Return how long a job printed nothing in each phase, from the text of a record of `preflight run`.

    Raise MalformedInput if the record is damaged or the job did not end well.
    """
    document = parse_json(text, RUN_RECORD, where)
    phases = document.get("phases") if isinstance(document, dict) and document.get("ended_well") is True else None
    if not isinstance(phases, dict) or not phases:
        raise MalformedInput(f"{where}: not what `preflight run` writes of a job that ended well")
    found = []
    for phase, times in phases.items():
        if phase not in (START, *Phase) or not isinstance(times, dict):
            raise MalformedInput(f"{where}: {phase[:40]!r} is no phase of a job")
        both_s = [times.get(name) for name in ("silent_s", "lasted_s")]
        read_s = [float(each) for each in both_s if isinstance(each, (int, float)) and 0 <= each <= LONGEST_PHASE_S]
        if len(read_s) != len(both_s):
            raise MalformedInput(f"{where}: {phase}: silent_s and lasted_s are not both a number of seconds")
        found.append(Silence(phase, *read_s))
    return tuple(found)


NESTED = ("text_config", "llm_config", "language_config")  # where a model of several parts keeps its language model
# The names that architectures give to the same number, and the most that any model could mean by it.
HIDDEN = (("hidden_size", "n_embd", "d_model", "dim"), 1 << 20)
LAYERS = (("num_hidden_layers", "n_layer", "num_layers", "n_layers"), 10_000)
INTERMEDIATE = (("intermediate_size", "n_inner", "ffn_dim", "d_ff", "ffn_hidden_size"), 1 << 24)
VOCABULARY = (("vocab_size", "padded_vocab_size"), 1 << 24)
CLASSIC_WIDENING = 4  # of the feed-forward, where a config names none


def parse_model_shape(text: str, where: str) -> ModelShape:
    """Return the shape of the model from the text of its config.json.

    Raise MalformedInput if a key is missing.
    """
    document = parse_json(text, MODEL_CONFIG, where)
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
    name, value = next(((name, config[name]) for name in names if config.get(name) is not None), ("", default))
    if value is None:
        raise MalformedInput(f"{where}: there is no {' or '.join(names)}; give the config.json of a transformer")
    if name and (isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= most):
        raise MalformedInput(f"{where}: {name} is {str(value)[:40]!r}, not a whole number from 1 to {most}")
    return int(value)
