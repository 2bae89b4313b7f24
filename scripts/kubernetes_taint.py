"""Taint the nodes that an acceptance Job rejected twice for the same finding: the controller of kubernetes_taint.yaml.

It reads how the containers `preflight` of one namespace's pods ended (exit code and termination message, which the Job
in kubernetes_accept.yaml writes), and nothing that a job's own pods say: whoever may make pods in that namespace may
taint. Accepted: the taint is taken away. Anything else, unknown above all, leaves a node as it is. Within an hour at
most 2 nodes, or 2% of the nodes, are tainted for one check: what rejects more at once is a new driver, a new image or a
defect of preflight, and no broken node. Needs only Python.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import re
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TAINT = {"key": "preflight/rejected", "effect": "NoSchedule"}
REJECTED = re.compile(r"preflight node rejected: (.*?): (?:.*?( \[[a-z0-9-]+\]))?", re.DOTALL)
NOTE = "preflight/rejected"  # an annotation beside the taint: when, and for which check
METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"  # of thousands of nodes, and no more
GONE, CONFLICT = 404, 409  # the node has left the cluster; somebody else changed it since it was read
FEWEST, SHARE, WITHIN = 2, 50, dt.timedelta(hours=1)  # at most 2 nodes, or one of 50


@dataclass(frozen=True, slots=True)
class Ended:
    """How a check on a node ended."""

    at: str  # RFC 3339, UTC: sorts as text
    code: int
    message: str

    @property
    def accepted(self) -> bool:
        """Tell whether this run accepted the node."""
        return self.code == 0 and self.message.startswith("preflight node accepted")

    @property
    def check(self) -> str:
        """Return the check of the first reason; empty where it names none."""
        return (re.findall(r"\[([a-z0-9-]+)\]", self.finding) or [""])[0]

    @property
    def finding(self) -> str:
        """Return what the first reason of a rejection is about, with its check; empty where it is none."""
        found = REJECTED.match(self.message) if self.code == 1 else None
        return f"{found[1]}{found[2] or ''}" if found else ""


def ended_by_node(pods: Sequence[Mapping[str, Any]]) -> dict[str, list[Ended]]:
    """Return how the checks ended on each node, the oldest first."""
    nodes: dict[str, list[Ended]] = {}
    for pod in pods:
        for status in pod.get("status", {}).get("containerStatuses", ()):
            end = status.get("state", {}).get("terminated")
            if status["name"] == "preflight" and end:
                ended = Ended(end.get("finishedAt") or "", end["exitCode"], end.get("message", ""))
                nodes.setdefault(pod["spec"]["nodeName"], []).append(ended)
    return {node: sorted(ends, key=lambda end: end.at) for node, ends in nodes.items()}


def wants_taint(ends: Sequence[Ended]) -> bool | None:
    """Return True after two rejections in a row for the same finding, False after an acceptance, None to leave it."""
    if ends and ends[-1].accepted:
        return False
    last = [end.finding for end in ends[-2:]]
    return True if len(last) == 2 and last[0] and last[0] == last[1] else None


def with_taint(taints: Sequence[Mapping[str, Any]], wanted: bool) -> list[Mapping[str, Any]]:
    """Return a node's taints with ours among them, or without it; everybody else's stay."""
    others = [each for each in taints if each.get("key") != TAINT["key"]]
    return [*others, TAINT] if wanted else others


class Cluster:
    """The API server, by the rights of this pod's own ServiceAccount."""

    def __init__(self, url: str) -> None:
        self.url = url
        certificate = ACCOUNT / "ca.crt"
        self.context = ssl.create_default_context(cafile=str(certificate)) if certificate.exists() else None

    def ask(self, path: str, patch: object = None, accept: str = "application/json") -> Any:
        """Get a document, or send a JSON merge patch."""
        body = None if patch is None else json.dumps(patch).encode()
        request = urllib.request.Request(self.url + path, body, method="GET" if body is None else "PATCH")
        request.add_header("Accept", accept)
        if body is not None:
            request.add_header("Content-Type", "application/merge-patch+json")
        token = ACCOUNT / "token"
        if token.exists():  # read each time: the kubelet replaces it
            request.add_header("Authorization", f"Bearer {token.read_text().strip()}")
        with urllib.request.urlopen(request, timeout=30, context=self.context) as answer:
            return json.load(answer)


def why_held(cluster: Cluster, check: str, now: dt.datetime) -> str:
    """Return why no more nodes are tainted for this check within the hour; empty where one may be."""
    nodes = cluster.ask("/api/v1/nodes", accept=METADATA)["items"]
    most, tainted = max(FEWEST, len(nodes) // SHARE), 0
    for node in nodes:
        at, _, noted = (node["metadata"].get("annotations") or {}).get(NOTE, "").partition(" ")
        try:
            is_new = now - dt.datetime.strptime(at, "%Y-%m-%dT%H:%M:%S%z") < WITHIN
        except ValueError:
            continue
        tainted += is_new and noted == check
    return f"{tainted} of {len(nodes)} nodes were tainted for [{check}] within an hour" if tainted >= most else ""


def look_once(cluster: Cluster, namespace: str, acts: bool) -> None:
    """Taint and untaint what has to be; what fails for one node stops no other."""
    pods = cluster.ask(f"/api/v1/namespaces/{namespace}/pods?labelSelector=app%3Dpreflight-accept")["items"]
    for name, ends in ended_by_node(pods).items():
        wanted = wants_taint(ends)
        if wanted is None:
            continue
        try:
            look_at_node(cluster, name, ends[-1], wanted, acts)
        except urllib.error.HTTPError as error:
            if error.code not in (GONE, CONFLICT):  # the next round reads it again
                raise
            print(f"{name}: {error}", file=sys.stderr, flush=True)  # noqa: T201


def look_at_node(cluster: Cluster, name: str, end: Ended, wanted: bool, acts: bool) -> None:
    """Taint or untaint a node, if it is not so already and the brake lets it."""
    path = f"/api/v1/nodes/{urllib.parse.quote(name, safe='')}"
    node = cluster.ask(path)
    taints = node["spec"].get("taints") or []
    if wanted == any(each.get("key") == TAINT["key"] for each in taints):
        return
    now = dt.datetime.now(dt.timezone.utc)
    held = why_held(cluster, end.check, now) if wanted else ""
    did = f"preflight brake: {held}; the node is kept" if held else "tainted" if wanted else "taint removed"
    print(f"{name}: {did}: {end.message.strip()}", flush=True)  # noqa: T201
    if acts and not held:
        note = now.strftime("%Y-%m-%dT%H:%M:%S+00:00 ") + end.check if wanted else None
        about = {"resourceVersion": node["metadata"]["resourceVersion"], "annotations": {NOTE: note}}
        cluster.ask(path, {"metadata": about, "spec": {"taints": with_taint(taints, wanted)}})


def main() -> None:
    """Look again and again."""
    parser = argparse.ArgumentParser(description=__doc__)
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
    parser.add_argument("--api", default=f"https://{f'[{host}]' if ':' in host else host}:{port}")
    parser.add_argument("--namespace", default="preflight")
    parser.add_argument("--every", type=float, default=30.0, metavar="SECONDS")
    parser.add_argument("--once", action="store_true", help="look once and end")
    parser.add_argument("--shadow", action="store_true", help="say what would be done, and do nothing")
    options = parser.parse_args()
    cluster = Cluster(options.api)
    while True:
        look_once(cluster, options.namespace, not options.shadow)
        if options.once:
            return
        time.sleep(options.every)


if __name__ == "__main__":
    main()
