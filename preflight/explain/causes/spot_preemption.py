"""A cloud or a cluster took the machine away: a spot instance, maintenance, or a job of higher priority."""

from __future__ import annotations

from preflight.explain.cause import Cause, Sign, by_signs, fixed
from preflight.explain.event import Authority

CAUSE = Cause(
    promise="The provider took a preemptible machine back. Nothing in the job failed.",
    signs=(
        Sign("spot.notice", Authority.KILLED, "the cloud or the cluster takes the machine back",
             r"TERMINATE_ON_HOST_MAINTENANCE|\"?preempted\"?: ?\"?(?:TRUE|[Tt]rue)|"
             r"(?:is being|was|were|(?:has|have) been|will be) (?:preempted|reclaimed)\b|compute\.instances\.preempted|"
             r"[Ss]pot (?:instance |VM |node )?(?:[Ii]nterrupt\w{0,6}|[Tt]erminat\w{0,6}|[Rr]eclaim\w{0,6}|"
             r"[Ee]vict\w{0,6}|preempt\w{0,6})|"
             r"SpotInterruption|spot/instance-action|[Rr]ebalance [Rr]ecommendation|[Pp]reemption (?:notice|signal|"
             r"event)|"
             r"\"EventType\": ?\"Preempt\"|PreemptionByScheduler|DeletionByTaintManager|TaintManagerEviction|"
             r"GracefulNodeShutdown|NodeShutdown|Pod was terminated in response to imminent node shutdown|"
             r"[Pp]reempted (?:by|in order|to accommodate)|PreemptedByScheduler|[Nn]ode is shutting down|"
             r"[Ee]victed? (?:by|due to) (?:preempt|a higher|higher|spot)|low-?priority[^\n]{0,20}evict|"
             r"ScaleDown[^\n]{0,20}deleting pod|instance (?:termination|interruption) (?:notice|warning)"),
    ),
    judge=by_signs("The cloud or the cluster took the machine back (preemption); nothing in the job failed{host}."),
    remedy=fixed(
        "Resume from the last checkpoint on another machine. Write checkpoints often, because the notice is only 25 "
        "s to 2 min.",
        "Write a checkpoint when the notice comes: trap SIGTERM, or watch the cloud's metadata. Let data-loader "
        "workers ignore SIGTERM, so that they run until the checkpoint is written.",
        "For automatic restarts, use a Job or PyTorchJob with restartPolicy OnFailure or an elastic policy "
        "(Kubernetes), or max_failures=-1 for the trainer (Ray). Or use nodes that are not spot.",
    ),
    confirmed_if="`kubectl get events` or the cloud's audit log shows that the node or instance was taken",
    confirm_with="kubectl get events --sort-by=.lastTimestamp   # or the cloud's log of that instance",
    outranks=("scheduler_cancelled", "host_oom_killed", "dataset_worker_died", "jax_coordination_timeout"),
)  # fmt: skip
