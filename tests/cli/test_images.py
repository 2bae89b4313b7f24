"""Both Containerfiles, built by buildah from a Debian that is made on the spot, and what runs in them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.test_wheel import must
from tests.conftest import PROJECT

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]
TORCH = "2.13.0"  # constraints.txt: the CPU build
PROGRAMS = ("debootstrap", "buildah")
SEEDS = PROJECT / "tests" / "explain" / "seeds"


class Images:
    """A store of images of its own, without a daemon; nothing is pulled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.base = ["buildah", "--storage-driver", "vfs", "--root", f"{folder}/store", "--runroot", f"{folder}/run"]

    def buildah(self, *argv: str | Path) -> subprocess.CompletedProcess[str]:
        environ = os.environ | {"BUILDAH_ISOLATION": "chroot"}
        return subprocess.run(
            [*self.base, *map(str, argv)], cwd=PROJECT, env=environ, capture_output=True, text=True, check=False,
            stdin=subprocess.DEVNULL,  # Go sets O_NONBLOCK on it, and the tests' own is every other test's too
            timeout=600,
        )  # fmt: skip

    def must(self, *argv: str | Path) -> str:
        ran = self.buildah(*argv)
        assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
        return ran.stdout.strip()

    def make_base(self) -> None:
        """Make the image that stands for both bases: this Debian, with its Python and pip."""
        root = self.folder / "root"
        targets = ("apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME)", "Created-By: Packages")
        listed = subprocess.run(targets, capture_output=True, text=True, check=True, timeout=60).stdout
        mirror, codename = listed.split()[:2]
        packages = "--include=python3,python3-pip,python3-venv,ca-certificates"
        must("debootstrap", "--variant=minbase", packages, codename, root, mirror)
        for guard in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
            guard.unlink()
        container = self.must("from", "scratch")
        self.must("copy", "-q", container, root, "/")
        # The packages come from a folder, as on a node without an index.
        self.must("config", "--env", "PIP_NO_INDEX=1", "--env", "PIP_FIND_LINKS=/wheels", container)
        self.must("commit", "-q", container, "base")
        self.must("rm", container)
        shutil.rmtree(root)

    def build(self, name: str, file: str, context: Path, wheels: Path, *options: str) -> None:
        pull = ("--pull-never", "--build-arg", "BASE=localhost/base")
        self.must("bud", *pull, "-v", f"{wheels}:/wheels:ro", *options, "-t", name, "-f", PROJECT / file, context)

    def run(self, name: str, user: str, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a new container."""
        container = self.must("from", "--pull-never", f"localhost/{name}")
        ran = self.buildah("run", "--user", user, "-v", f"{SEEDS}:/logs:ro", container, *argv)
        self.must("rm", container)
        return ran


def test_both_images_are_built_and_do_what_they_are_for(tmp_path: Path, need: Callable[[str, bool, str], None]) -> None:
    have = os.geteuid() == 0 and all(map(shutil.which, PROGRAMS))
    need("buildah", have, "needs root, and Debian's buildah and debootstrap")
    images, wheels, context = Images(tmp_path / "images"), tmp_path / "wheels", tmp_path / "context"
    images.folder.mkdir()
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--dest", wheels)
    must(*pip, "--no-deps", "--require-hashes", "-r", "requirements.lock")
    must(*pip, "-c", "constraints.txt", f"torch=={TORCH}")
    must(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", context / "dist")
    (context / "scripts").mkdir()
    for name in ("requirements.lock", "scripts/kubernetes_taint.py"):
        shutil.copy(PROJECT / name, context / name)
    try:
        images.make_base()
        images.build("preflight-slim", "Containerfile.slim", context, wheels)
        explained = images.run("preflight-slim", "65534:65534", "preflight", "explain", "/logs/3b_xtuner_oom.log")
        assert (explained.stdout.splitlines()[0], explained.returncode) == ("FOUND", 1), explained
        refused = images.run("preflight-slim", "65534:65534", "preflight", "check")
        assert refused.stdout.startswith("UNKNOWN  torch is not installed") and refused.returncode == 3, refused
        controller = ("python3", "/opt/preflight/kubernetes_taint.py", "--help")
        assert "--shadow" in images.run("preflight-slim", "65534:65534", *controller).stdout

        images.build("preflight", "Containerfile", context, wheels, "--build-arg", f"TORCH={TORCH}")
        checked = images.run("preflight", "0:0", "sh", "-c", "preflight check && ls")
        assert checked.returncode == 0 and "READY  2 ranks on gloo, no GPU tested" in checked.stdout, checked
        assert {"preflight.env", "preflight-report.json"} <= set(checked.stdout.split())
    finally:
        images.buildah("rm", "--all")
        shutil.rmtree(images.folder)
