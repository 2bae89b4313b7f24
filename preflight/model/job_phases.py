"""The phases of a job, and the log lines that show each phase.

`preflight run` also imports this module, so the module imports little.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

START = "start"  # until the first line of training: imports, data, weights, the first step


class Phase(str, Enum):
    """A phase of a job in which ranks may wait long for each other.

    The value of a member is the phase's name in texts.
    """

    SAVING = "saving a checkpoint"
    PREPROCESSING = "preparing the data set"
    LOADING = "loading the model"
    EVALUATING = "evaluating"
    TRAINING = "training"
    FINISHED = "at the end of training"


# Case matters: the bytes are searched for as written.
WORDS: dict[Phase, str] = {
    Phase.SAVING: (
        r"[Ss]aving (?:[\w-]{1,20} ){0,5}(?:model|checkpoint|weights|optimizer|state|adapter|snapshot|ckpt)|"
        r"[Ss]aved? (?:model|checkpoint|state) |Retrieving (?:full model|optimizer) state dict|state dict took \d|"
        r"save_pretrained|save_checkpoint|save_model|_save_other|save_state|_save_checkpoint|save_16bit_model|"
        r"save_fsdp|full_state_dict|get_model_state_dict|FullStateDictConfig|_zero3_consolidated|"
        r"\[Torch\] (?:Checkpoint|Saving)|"
        r"[Cc]heckpointing (?:model|state|at |to )|[Dd]umping (?:the )?(?:model|checkpoint|state)|"
        r"(?:model|checkpoint|weights|tokenizer config file|configuration) (?:is )?saved|"
        r"(?:Model weights|Configuration|tokenizer config file|Special tokens file) saved in|"
        r"saving checkpoint at iteration|[Ww]riting (?:checkpoint|model)|shards? (?:written|saved)|'train_runtime'|"
        r"Training completed\. Do not forget to share|Checkpoint \S{1,80} is ready now"
    ),
    Phase.PREPROCESSING: (
        r"Running tokenizer|[Tt]okeni[sz]ing|Map(?: \(num_proc=\d+\))?: +\d|Filter(?: \(num_proc=\d+\))?: +\d|"
        r"Generating \w+ split|Converting format of dataset|build_train_valid_test_data|"
        r"> building (?:train|indices|shuffle|sample|doc|dataset index)|"
        r"building (?:the indices on rank|sapmles index)|Build and save the|"
        r"data files using \d|mem-?mapped files|Scanning \S{1,80}labels|Caching images|"
        r"building (?:the )?(?:train|validation|test|index|sample|doc|shuffle)[\w, -]{0,40}(?:dataset|ind|map)|"
        r"[Pp]re-?processing (?:the |train|data[ s]|dataset|\d)|"
        r"Grouping texts|Packing |Dropping Long Sequences|Saving the dataset|Loading dataset|"
        r"\d ?(?:examples|docs|records|files|rows|[KMG]?B)/s|, +[\d.]{1,12} ?samples/s\]|"
        r"Downloading (?:data|shards|builder|readme|and preparing)"
    ),
    Phase.LOADING: r"Loading checkpoint shards|Load(?:ing)? (?:pipeline|safetensors|model|weights)|Fetching \d+ files",
    Phase.EVALUATING: r"\*\*\*\*\* Running (?:Evaluation|Prediction)|[Vv]alidation(?: DataLoader| Sanity)|"
    r"[Ee]valuat(?:ing|ion)",
    Phase.TRAINING: r"\{'loss'|\biteration +\d+/|\d/\d+ \[[\d:]+<[\d:]+, |consumed samples",
}


class Silence(NamedTuple):
    """The duration of a phase in a job that ended well, and the longest time without output in this phase."""

    phase: str  # START, or a Phase
    silent_s: float  # the longest time without output
    lasted_s: float  # from the first line of the phase to its last, or to the end of the start
