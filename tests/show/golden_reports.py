"""The reports whose pages are kept in tests/golden."""

from __future__ import annotations

from preflight.check.recommend.env import recommend, with_timeouts
from preflight.model.collective import Collective
from preflight.model.facts import EnvVar, NcclConfEntry
from preflight.model.finding import Blame, Evidence, Finding, Severity, SkippedCheck
from preflight.model.job import Job
from preflight.model.report import NodeVerdict, Report, Verdict
from preflight.model.trial import Comparison, LeftOut, Outcome
from preflight.timeout.safe_timeout import safe_timeout
from preflight.timeout.timings import timings
from tests.controls import confirmed_best
from tests.reports import MIB, advice_of, failed_trial, netif_trial, node_facts, report_of, timed, trial_result

BOTH = (Collective.ALL_REDUCE, Collective.ALL_GATHER)
LEFT_OUT = (
    LeftOut("netif-lo", "loopback reaches no other node and is never recommended"),
    LeftOut("netif-docker0", "no carrier: nothing is plugged into the bridge"),
)
SHM = Finding(
    check="shm-size",
    blame=Blame.CONTAINER,
    severity=Severity.WARN,
    subject="n1 /dev/shm",
    problem="/dev/shm has 64 MiB, but 8 ranks with NCCL and data loaders often need 1 GiB or more",
    fix="start the container with --shm-size=16g or --ipc=host",
    evidence=(Evidence("size of /dev/shm", "67108864 bytes", "statvfs /dev/shm"),),
)
MEMLOCK = Finding(
    check="memlock",
    blame=Blame.HOST,
    severity=Severity.INFO,
    subject="n1",
    problem="only 8 MiB can be locked, but InfiniBand needs more",
    fix="",
    evidence=(),
)
NO_INTERFACE = Finding(
    check="netif-usable",
    blame=Blame.FABRIC,
    severity=Severity.FAIL,
    subject="n1 eth0",
    problem="no interface carries traffic between the ranks: the default settings and both other configurations "
    "hang at init",
    fix="check the firewall between the ranks (`nft list ruleset`). Check that the node can reach the address of its "
    "own eth0",
    evidence=(Evidence("outcome", "hang at init on rank 1", "trial 'default'"),),
)


def healthy() -> Report:
    """Return the usual answer."""
    advice = recommend((trial_result(),), (), (), cpu_path=True)
    measured = timings((trial_result(),), 2, None, {})
    advice = with_timeouts(advice, safe_timeout(Job(world_size=2), measured), {}, "gloo")
    return report_of(left_out=LEFT_OUT, advice=advice)


def one_interface_works() -> Report:
    """Return a run whose default hangs and that finds an interface that works."""
    sizes = [(each, size, us) for each in BOTH for size, us in ((4 * MIB, 3541.0), (16 * MIB, 14_020.0))]
    results = tuple(timed(each, size, us) for each, size, us in sizes)
    trials = (failed_trial(), netif_trial("eth0", results=results), failed_trial("netif-wlan0"))
    return report_of(
        verdict=Verdict.READY_WITH_ENV,
        headline="ready with settings: 2 ranks on gloo, no GPU tested, data verified; "
        "source the .env: GLOO_SOCKET_IFNAME=eth0, NCCL_SOCKET_IFNAME=eth0",
        trials=trials,
        left_out=LEFT_OUT,
        advice=recommend(trials, (), (), cpu_path=True, control=confirmed_best(trials)),
        control=confirmed_best(trials),
        profile="standard",
    )


def nothing_works() -> Report:
    """Return a run in which every candidate failed."""
    trials = (failed_trial(), failed_trial("netif-eth0"), failed_trial("netif-enp129s0f0np0v1234"))
    return report_of(
        verdict=Verdict.NOT_READY,
        node_verdict=NodeVerdict.REJECT,
        exit_code=1,
        headline="None of the tested settings lets the 2 ranks communicate: rank 1 is stuck at init.",
        trials=trials,
        findings=(NO_INTERFACE,),
        advice=recommend(trials, (), (), cpu_path=True, control=confirmed_best(trials)),
        control=confirmed_best(trials),
        problems=("netifaces could not be imported, so the gateways are unknown",),
    )


def simulated() -> Report:
    """Return a run against the simulated backend."""
    wrong = trial_result(
        outcome=Outcome.WRONG_DATA,
        problem="all_reduce 1 MiB: 1 wrong element on rank 1",
        results=(timed(verified=False), timed(Collective.ALL_GATHER)),
    )
    return report_of(
        simulated=True,
        backend="simnccl",
        verdict=Verdict.NOT_READY,
        exit_code=1,
        headline="all_reduce gave wrong data on rank 1.",
        trials=(wrong,),
        advice=recommend((wrong,), (), (), cpu_path=True),
    )


def warnings() -> Report:
    """Return a run with warnings, a lost comparison, inherited variables and checks that were inconclusive."""
    trials = (
        trial_result(unset=("NCCL_DEBUG",)),
        trial_result("as-is", 790.0),
        netif_trial("eth0", median_us=760.0),
    )
    comparisons = (Comparison("netif-eth0", 8, 0.031, -0.012, 0.018, wins=False),)
    inherited = (EnvVar("NCCL_DEBUG", "INFO"),)
    return report_of(
        headline="ready: 2 ranks on gloo, no GPU tested, data verified; no settings needed",
        findings=(MEMLOCK, SHM),
        trials=trials,
        comparisons=comparisons,
        nodes=(node_facts(environment=inherited, nccl_conf=(NcclConfEntry("/etc/nccl.conf", "NCCL_X", "1"),)),),
        skipped_checks=(
            SkippedCheck("hostname-loopback", Blame.HOST, "the name server did not answer within 1 s", crashed=False),
            SkippedCheck("memlock", Blame.HOST, "KeyError: 'max'", crashed=True),
        ),
        advice=recommend(trials, comparisons, inherited, cpu_path=True),
    )


def unknown() -> Report:
    """Return a run in which preflight is inconclusive."""
    return report_of(
        verdict=Verdict.UNKNOWN,
        exit_code=3,
        headline="torch is not installed in this Python, so no collective could be tried.",
        trials=(),
        advice=advice_of(reason="no trial ran, so nothing can be recommended"),
    )


REPORTS = {
    "healthy": healthy,
    "one_interface_works": one_interface_works,
    "nothing_works": nothing_works,
    "simulated": simulated,
    "warnings": warnings,
    "unknown": unknown,
}
