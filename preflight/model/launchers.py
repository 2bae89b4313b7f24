"""A table of launchers, schedulers and serving engines.

A new launcher is a new row. An empty field means that the launcher has no such name or option.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple


class RankVariables(NamedTuple):
    """The environment variables that give a rank and the number of ranks. "" means that there is no variable."""

    rank: str
    size: str
    local_rank: str = ""
    local_size: str = ""


@dataclass(frozen=True, slots=True)
class GpuOptions:
    """The command-line options that select a node's GPUs for the job, without their dashes."""

    counts: tuple[str, ...]  # the number of GPUs is the product of those that are given
    nodes: tuple[str, ...] = ()  # the number of nodes that have these GPUs together
    replaced: tuple[tuple[str, tuple[str, ...]], ...] = ()  # an option, and the counts that it makes ineffective
    first: str = ""  # the place of the first GPU
    step: str = ""  # the distance to the next one
    has_script: bool = True  # the options after a script's name are the script's own
    count_variable: str = ""  # the environment variable that is used if no count is given
    listed: str = ""  # lists the numbers of the GPUs; replaces CUDA_VISIBLE_DEVICES
    ignores_visible: bool = False  # a count refers to all GPUs, whatever CUDA_VISIBLE_DEVICES says


@dataclass(frozen=True, slots=True)
class NodeVariables:
    """The environment variables that give the position of a node in a job.

    The first variable that is set counts.
    """

    shown_by: tuple[str, ...]  # if any of these is set, the process has this launcher
    nodes: str  # "" if only the processes are counted, which must then be one per node
    node_rank: tuple[str, ...]
    meeting: tuple[tuple[str, str], ...] = (("MASTER_ADDR", "MASTER_PORT"),)  # host and port of the rendezvous
    endpoint: str = ""  # host and port in one variable
    unless: str = ""  # if this is set, the other variables count ranks, not nodes
    processes: str = ""  # the processes of all nodes; with one per node, the number of nodes
    processes_here: str = ""  # the processes of this node
    once: str = ""  # how one process per node is started


@dataclass(frozen=True, slots=True)
class Launcher:
    """A row of the table: one launcher, scheduler or serving engine, and how to recognize and use it."""

    name: str
    log_words: str = ""  # a pattern that is found in its logs
    wrappers: tuple[str, ...] = ()  # programs that start a rank's program and wait for it
    programs: tuple[str, ...] = ()  # programs (with their verb) that start ranks on the GPUs that `gpus` selects
    modules: tuple[str, ...] = ()  # modules that do the same after `python -m`
    gpus: GpuOptions | None = None
    ranks: tuple[RankVariables, ...] = ()
    job_variables: tuple[tuple[str, ...], ...] = ()  # their values identify a job: the same for all its ranks
    node: NodeVariables | None = None
    node_counts: tuple[str, ...] = ()  # variables inside the job that give its number of nodes
    # Under this launcher: how to set variables, how to raise limits, where the other logs are.
    sets_variables: str = ""
    sets_limits: str = ""
    keeps_logs: str = ""
    versions: str = ""  # in whose sources the options were read
    titles: str = ""  # a pattern of the titles that its processes give themselves, with their name as its only group


# The more precise first: Ray runs on Kubernetes and under Slurm too, torchrun below all of them.
LAUNCHERS = (
    Launcher(
        "ray",
        log_words=r"\(raylet|ray::|\bray\.(?:exceptions|get)|RayWorkerWrapper|Connected to Ray cluster|"
        r"local Ray instance",
        sets_variables="With Ray, the variables must reach the actors too: use ray.init(runtime_env={'env_vars': "
        "{...}}), or set them on every node before `ray start`.",
        sets_limits="With Ray, each node's limits are those of the shell or container in which `ray start` ran.",
        keeps_logs="Ray keeps the logs on the worker's node: ls /tmp/ray/session_latest/logs/ (raylet.out, and "
        "worker-*PID*.err of its pid).",
    ),
    Launcher(
        "kubernetes",
        log_words=r"\bkubectl\b|\[pod/|\bpod/[a-z]|PyTorchJob|mpijob\.kubeflow|kubeflow\.org",
        node=NodeVariables(
            ("WORLD_SIZE", "JOB_COMPLETION_INDEX"), "WORLD_SIZE", ("RANK", "JOB_COMPLETION_INDEX"), unless="LOCAL_RANK",
        ),
        sets_variables="On Kubernetes, set variables in the pod spec (spec.containers[].env) of every replica, not in "
        "a shell.",
        sets_limits="On Kubernetes, set limits and volumes in the pod spec of every replica.",
        keeps_logs="kubectl logs POD --previous; kubectl describe pod POD; kubectl get events "
        "--sort-by=.lastTimestamp",
    ),
    Launcher(
        "slurm",
        log_words=r"\bsrun: |slurmstepd: |\bsbatch\b|SLURM_JOB_ID",
        wrappers=("srun", "slurmstepd"),
        ranks=(RankVariables("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),),
        job_variables=(("SLURM_JOB_ID", "SLURM_STEP_ID"),),
        node_counts=("SLURM_NNODES",),
        sets_variables="Under Slurm, export variables before srun. Slurm passes them to the tasks unless --export "
        "limits them.",
        sets_limits="Under Slurm, a task gets the limits of slurmd and of the submitting shell: srun bash -c "
        "'ulimit -a; df -h /dev/shm' shows them.",
        keeps_logs="srun --output=job-%j-%t.log keeps one log per task; sacct -j JOBID "
        "--format=JobID,State,ExitCode,MaxRSS,NodeList shows how each task ended.",
    ),
    Launcher(  # flux-environment(7)
        "flux",
        wrappers=("flux-shell",),
        ranks=(RankVariables("FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID"),),
        job_variables=(("FLUX_JOB_ID",),),
        node=NodeVariables(
            ("FLUX_JOB_NNODES",), "FLUX_JOB_NNODES", ("FLUX_TASK_RANK",), processes="FLUX_JOB_SIZE",
            once="flux run --nodes N --tasks-per-node 1",
        ),
        node_counts=("FLUX_JOB_NNODES",),
    ),
    Launcher(  # Open MPI's manual, 11.1
        "mpirun",
        log_words=r"\bmpirun\b|\[1,\d{1,6}\]<std|prterun|mpiexec",
        wrappers=("mpirun", "mpiexec"),
        ranks=(
            RankVariables(
                "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                "OMPI_COMM_WORLD_LOCAL_SIZE",
            ),
            RankVariables("PMIX_RANK", "PMI_SIZE"),
        ),
        node=NodeVariables(
            ("OMPI_COMM_WORLD_SIZE",), "", ("OMPI_COMM_WORLD_RANK",), processes="OMPI_COMM_WORLD_SIZE",
            processes_here="OMPI_COMM_WORLD_LOCAL_SIZE", once="mpirun --map-by ppr:1:node",
        ),
        sets_variables="mpirun passes variables to other hosts only with -x NAME (Open MPI) or -genv NAME VALUE "
        "(MPICH, Intel).",
        keeps_logs="mpirun --output-filename DIR (Open MPI) keeps one log a rank.",
    ),
    Launcher(  # hydra, of MPICH and Intel MPI
        "mpiexec",
        ranks=(RankVariables("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),),
        node=NodeVariables(
            ("MPI_LOCALNRANKS",), "", ("PMI_RANK",), processes="PMI_SIZE", processes_here="MPI_LOCALNRANKS",
            once="mpiexec -ppn 1",
        ),
    ),
    Launcher(
        "deepspeed",
        log_words=r"\[launch\.py:\d|deepspeed\.launcher|\bpdsh\b",
        programs=("deepspeed",),
        modules=("deepspeed.launcher.runner",),
        gpus=GpuOptions(("num_gpus",), listed="include", ignores_visible=True),
        sets_variables="DeepSpeed's launcher passes the variables in ~/.deepspeed_env to the other hosts; write one "
        "NAME=VALUE per line.",
        keeps_logs="deepspeed --enable_each_rank_log DIR keeps one log a rank.",
    ),
    Launcher(
        "docker",
        log_words=r"\bdocker (?:run|compose)|Attaching to |nvidia-container-cli",
        sets_variables="In a container set variables with docker run -e NAME=VALUE, or in the compose file.",
        keeps_logs="docker logs CONTAINER on every host; docker inspect -f '{{.State}}' CONTAINER shows how it ended.",
    ),
    Launcher(
        "torchrun",
        log_words=r"\btorchrun\b|torch[./]distributed[./](?:elastic|run|launch)\b|elastic/multiprocessing",
        programs=("torchrun",),
        modules=("torch.distributed.run", "torch.distributed.launch"),
        gpus=GpuOptions(("nproc_per_node",), count_variable="PET_NPROC_PER_NODE"),
        ranks=(RankVariables("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),),
        job_variables=(("MASTER_ADDR", "MASTER_PORT"), ("TORCHELASTIC_RUN_ID",)),
        node=NodeVariables(
            ("PET_NNODES",), "PET_NNODES", ("PET_NODE_RANK", "RANK", "JOB_COMPLETION_INDEX"),
            (("PET_MASTER_ADDR", "PET_MASTER_PORT"), ("MASTER_ADDR", "MASTER_PORT")), endpoint="PET_RDZV_ENDPOINT",
        ),
        node_counts=("PET_NNODES", "NNODES"),
        sets_variables="If a step sets an environment variable, export the variable on every node before you start "
        "torchrun. The ranks inherit torchrun's environment.",
    ),
    Launcher(
        "accelerate",
        programs=("accelerate", "accelerate-launch"),
        modules=("accelerate.commands.launch",),
        gpus=GpuOptions(("num_processes",), nodes=("num_machines",), listed="gpu_ids"),
    ),
    Launcher(
        "vllm",
        log_words=r"vLLM API server version|\(EngineCore|VllmWorker|Initializing a V\d LLM engine|\bvllm serve\b",
        programs=("vllm serve",),
        modules=("vllm.entrypoints.openai.api_server",),
        gpus=GpuOptions(
            (
                "tensor_parallel_size", "tp", "pipeline_parallel_size", "pp", "prefill_context_parallel_size", "pcp",
                "data_parallel_size", "dp", "data_parallel_size_local", "dpl",
            ),
            nodes=("nnodes", "n"),
            replaced=(
                ("data_parallel_size_local", ("data_parallel_size", "dp")), ("dpl", ("data_parallel_size", "dp")),
            ),
            has_script=False,
        ),
        versions="0.11.0, 0.22.0, 0.33.0: vllm/engine/arg_utils.py, vllm/config/parallel.py",
        titles=r"VLLM::(\w{1,60})$",  # Worker_TP1, Worker_PP0_TP1, EngineCore, EngineCore_DP0: vLLM 0.32.0
    ),
    Launcher(
        "sglang",
        log_words=r"\bsglang\.launch_server\b|server_args=ServerArgs|\bsglang serve\b",
        programs=("sglang serve",),
        modules=("sglang.launch_server",),
        gpus=GpuOptions(
            (
                "tensor_parallel_size", "tp_size", "tp", "pipeline_parallel_size", "pp_size", "pp",
                "data_parallel_size", "dp_size", "dp",
            ),
            nodes=("nnodes",),
            replaced=(("enable_dp_attention", ("data_parallel_size", "dp_size", "dp")),),  # it divides the TP group
            first="base_gpu_id",
            step="gpu_id_step",
            has_script=False,
        ),
        versions="0.5.5, 0.5.14, 0.5.23: sglang/srt/server_args.py, sglang/srt/managers/data_parallel_controller.py",
        titles=r"sglang::(\w{1,60})$",  # scheduler_TP1, detokenizer
    ),
)  # fmt: skip
TITLES = tuple(re.compile(each.titles) for each in LAUNCHERS if each.titles)
NODE_COUNTS = tuple(name for each in LAUNCHERS for name in each.node_counts)  # the first that is set counts


def engine_name(title: str) -> str:
    """Return the name of a process of a serving engine, such as `Worker_TP1`.

    `title` is the process title. Return "" if it is not the title of a serving engine's process.
    """
    return next((match[1] for each in TITLES if (match := each.match(title))), "")
