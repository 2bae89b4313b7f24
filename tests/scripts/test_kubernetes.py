"""The acceptance Job and the controller that taints: their schemas, their rights, and the controller at work.

The API server here is a few lines that hold pods and a node, allow just what the roles of kubernetes_taint.yaml allow,
and refuse a patch of an older resourceVersion.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import kubernetes_validate
import pytest
import yaml

from preflight import __version__
from preflight.model.finding import Blame
from preflight.show.drain_nagios_k8s import render_drain
from scripts.kubernetes_taint import Ended, wants_taint
from tests.conftest import PROJECT
from tests.scripts.conftest import ANSWERS, SCRIPTS, StandIn
from tests.show.judged import BLAMED

K8S_JOB = PROJECT / "preflight" / "data" / "k8s_job.yaml"
(JOB,) = yaml.safe_load_all((SCRIPTS / "kubernetes_accept.yaml").read_text())
DOCUMENTS = list(yaml.safe_load_all((SCRIPTS / "kubernetes_taint.yaml").read_text()))
KINDS = {document["kind"]: document for document in DOCUMENTS if document["metadata"]["name"] != "preflight-accept"}
POD = JOB["spec"]["template"]["spec"]
FABRIC = render_drain(BLAMED[Blame.FABRIC]())
OTHERS = {"key": "somebody-else", "effect": "NoExecute", "value": "1"}
OURS = {"key": "preflight/rejected", "effect": "NoSchedule"}

Server = Callable[[list[tuple[int, str]]], "Api"]


def allowed(verb: str, resource: str) -> bool:
    rules = [*KINDS["ClusterRole"]["rules"], *KINDS["Role"]["rules"]]
    return any(verb in rule["verbs"] and resource in rule["resources"] for rule in rules)


class Api(ThreadingHTTPServer):
    """Holds nodes, and how the checks on them ended."""

    def __init__(self, ends: list[tuple[int, str]]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.nodes: dict[str, dict[str, Any]] = {}
        self.node = self.add_node("n1")
        self.pods = [pod(number, code, message) for number, (code, message) in enumerate(ends)]
        self.asked: list[tuple[str, str]] = []
        self.behind = False  # whether somebody changes the node after it was read

    def add_node(self, name: str) -> dict[str, Any]:
        metadata = {"name": name, "resourceVersion": "7", "annotations": {"somebody": "else's"}}
        self.nodes[name] = {"metadata": metadata, "spec": {"taints": [OTHERS]}}
        return self.nodes[name]

    def tainted(self) -> list[str]:
        return [name for name, node in self.nodes.items() if OURS in node["spec"]["taints"]]

    def run(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Run the controller once."""
        argv = [sys.executable, str(SCRIPTS / "kubernetes_taint.py"), "--once", *options]
        argv += ["--api", f"http://127.0.0.1:{self.server_address[1]}"]
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)


class Handler(BaseHTTPRequestHandler):
    """Answers as the API server does, as far as the controller asks."""

    server: Api

    def log_message(self, *args: object) -> None:
        """Keep quiet."""

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path == "/api/v1/namespaces/preflight/pods" and query == "labelSelector=app%3Dpreflight-accept":
            self.answer("list", "pods", {"items": self.server.pods})
        elif path == "/api/v1/nodes":
            assert "PartialObjectMetadataList" in self.headers["Accept"]
            self.answer("list", "nodes", {"items": [{"metadata": n["metadata"]} for n in self.server.nodes.values()]})
        elif node := self.server.nodes.get(path.rpartition("/")[2]):
            self.answer("get", "nodes", node)
        else:
            self.send_error(404)

    def do_PATCH(self) -> None:
        assert self.headers["Content-Type"] == "application/merge-patch+json"
        patch = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        node = self.server.nodes[self.path.rpartition("/")[2]]
        if self.server.behind or patch["metadata"]["resourceVersion"] != node["metadata"]["resourceVersion"]:
            self.send_error(409)
            return
        node["spec"]["taints"] = patch["spec"]["taints"]
        for key, value in patch["metadata"]["annotations"].items():
            node["metadata"]["annotations"].pop(key, None)
            node["metadata"]["annotations"] |= {} if value is None else {key: value}
        self.answer("patch", "nodes", node)

    def answer(self, verb: str, resource: str, document: object) -> None:
        self.server.asked.append((verb, resource))
        if not allowed(verb, resource):
            self.send_error(403)
            return
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def pod(number: int, code: int, message: str, node: str = "n1") -> dict[str, Any]:
    """Return a pod of the Job as Kubernetes lists it after its end."""
    end = {"exitCode": code, "message": message, "finishedAt": f"2026-11-23T0{number}:00:00Z"}
    status = {"containerStatuses": [{"name": POD["containers"][0]["name"], "state": {"terminated": end}}]}
    return {
        "metadata": {"labels": JOB["spec"]["template"]["metadata"]["labels"]},
        "spec": {"nodeName": node},
        "status": status,
    }


@pytest.fixture
def server() -> Iterator[Server]:
    """Return a function that starts the API server with so many ends of checks on the node."""
    running: list[Api] = []

    def start(ends: list[tuple[int, str]]) -> Api:
        running.append(Api(ends))
        threading.Thread(target=running[-1].serve_forever, kwargs={"poll_interval": 0.02}).start()
        return running[-1]

    yield start
    for each in running:
        each.shutdown()
        each.server_close()


@pytest.mark.parametrize("document", [JOB, *DOCUMENTS], ids=lambda document: str(document["kind"]))
def test_every_document_fits_kubernetes_own_schema(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def test_the_controller_alone_has_rights_and_no_more_than_it_uses() -> None:
    bound = [each["name"] for kind in ("RoleBinding", "ClusterRoleBinding") for each in KINDS[kind]["subjects"]]
    assert set(bound) == {KINDS["Deployment"]["spec"]["template"]["spec"]["serviceAccountName"]} == {"preflight-taint"}
    assert KINDS["ClusterRole"]["rules"] == [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "patch"]}
    ]
    assert KINDS["Role"]["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    for path in (SCRIPTS / "kubernetes_accept.yaml", K8S_JOB, SCRIPTS / "kubernetes_init.yml"):
        for document in yaml.safe_load_all(path.read_text()):
            if document["kind"] in ("Job", "Pod"):
                spec = document["spec"]["template"]["spec"] if document["kind"] == "Job" else document["spec"]
                assert spec["automountServiceAccountToken"] is False, (
                    f"{path.name}: a job's pod needs nothing of the cluster"
                )


def test_the_images_are_those_of_the_containerfiles() -> None:
    texts = [(PROJECT / name).read_text() for name in ("Containerfile", "Containerfile.slim")]
    built = [re.findall(r"^#.* -t (\S+)", text, re.MULTILINE) for text in texts]
    assert built == [[f"preflight:{__version__}"], [f"preflight-slim:{__version__}"]]
    (controller,) = KINDS["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert [POD["containers"][0]["image"], controller["image"]] == [built[0][0], built[1][0]]
    assert (
        f"COPY requirements.lock dist/*.whl {SCRIPTS.name}/{controller['command'][1].rpartition('/')[2]} " in texts[1]
    )


@pytest.mark.parametrize(("ends", "taints", "again"), [
    ([(1, ANSWERS[1])], [OTHERS], False),
    ([(1, ANSWERS[1]), (1, ANSWERS[1])], [OTHERS, OURS], True),
    ([(1, ANSWERS[1]), (1, FABRIC)], [OTHERS], False),
    ([(1, ANSWERS[1]), (3, ANSWERS[3]), (1, ANSWERS[1])], [OTHERS], False),
    ([(1, "Traceback"), (1, "Traceback")], [OTHERS], False),
    ([(137, ""), (137, "")], [OTHERS], False),
])  # fmt: skip
def test_two_rejections_in_a_row_for_the_same_finding_taint_and_nothing_else_does(
    server: Server, ends: list[tuple[int, str]], taints: list[dict[str, str]], again: bool
) -> None:
    api = server(ends)
    ran = api.run()
    assert (ran.returncode, ran.stderr) == (0, "")
    assert api.node["spec"]["taints"] == taints
    assert ran.stdout == (f"n1: tainted: {ANSWERS[1].strip()}\n" if again else "")
    before = api.asked.count(("patch", "nodes"))
    assert api.run().stdout == "" and api.asked.count(("patch", "nodes")) == before, "what is done is done"


def test_an_acceptance_takes_the_taint_away_and_unknown_leaves_it(server: Server) -> None:
    api = server([(1, ANSWERS[1]), (1, ANSWERS[1])])
    api.run()
    api.pods.append(pod(2, 3, ANSWERS[3]))
    api.run()
    assert api.node["spec"]["taints"] == [OTHERS, OURS]
    api.pods.append(pod(3, 0, ANSWERS[0]))
    assert api.run().stdout.startswith("n1: taint removed: preflight node accepted")
    assert api.node["spec"]["taints"] == [OTHERS]


def test_a_shadow_does_nothing_and_a_change_of_somebody_else_s_is_not_overwritten(server: Server) -> None:
    api = server([(1, ANSWERS[1]), (1, ANSWERS[1])])
    assert api.run("--shadow").stdout.startswith("n1: tainted: ")
    assert ("patch", "nodes") not in api.asked
    api.behind = True
    assert "HTTP Error 409" in api.run().stderr
    assert api.node["spec"]["taints"] == [OTHERS]


@pytest.mark.parametrize("code", [0, 1, 3])
def test_the_job_ends_with_preflight_s_exit_code_and_its_reason_as_the_message(stand_in: StandIn, code: int) -> None:
    stand_in.answers(code)
    stand_in.out.mkdir()
    (stand_in.out / "drain.txt").write_text("yesterday's")
    script = POD["containers"][0]["args"][0].replace("/var/lib/preflight", str(stand_in.out))
    ran = stand_in.run("sh", "-c", script.replace("/dev/termination-log", f"{stand_in.out}/message"))
    assert ran.returncode == code, ran.stderr
    message = (stand_in.out / "message").read_text()
    assert message == ANSWERS[code]
    assert wants_taint([Ended("1", code, message), Ended("2", code, message)]) is {0: False, 1: True, 3: None}[code]


def rejected_twice(*nodes: str) -> list[dict[str, Any]]:
    return [pod(number, 1, ANSWERS[1], node) for node in nodes for number in (0, 1)]


def test_what_rejects_eight_of_forty_nodes_at_once_taints_two_and_says_why_the_others_are_kept(server: Server) -> None:
    api = server([])
    names = [f"n{number}" for number in range(1, 41)]
    for name in names[1:]:
        api.add_node(name)
    api.pods = rejected_twice(*names[:8])
    ran = api.run()
    assert (ran.returncode, ran.stderr) == (0, "")
    assert api.tainted() == ["n1", "n2"]
    kept = "preflight brake: 2 of 40 nodes were tainted for [gpu-recovery] within an hour; the node is kept: "
    assert ran.stdout.count(kept) == 6
    assert api.run().stdout.count(kept) == 6 and api.tainted() == ["n1", "n2"], "and so does a new controller"
    for name in ("n1", "n2"):
        api.nodes[name]["metadata"]["annotations"]["preflight/rejected"] = "2026-01-01T00:00:00+00:00 gpu-recovery"
    api.run()
    assert api.tainted() == ["n1", "n2", "n3", "n4"], "an hour later the next ones"


def test_the_brake_counts_each_check_alone_and_2_percent_of_many_nodes(server: Server) -> None:
    api = server([])
    names = [f"n{number}" for number in range(1, 251)]
    for name in names[1:]:
        api.add_node(name)
    api.pods = [*rejected_twice(*names[:8]), *(pod(number, 1, FABRIC, "n9") for number in (0, 1))]
    api.run()
    assert api.tainted() == ["n1", "n2", "n3", "n4", "n5", "n9"]


def test_a_node_that_is_gone_keeps_no_other_from_being_looked_at(server: Server) -> None:
    api = server([])
    api.pods = rejected_twice("gone", "n1")
    ran = api.run()
    assert ran.returncode == 0 and "gone: HTTP Error 404" in ran.stderr
    assert api.tainted() == ["n1"]


def test_the_examples_of_kubernetes_keep_settings_and_reports_apart_and_share_no_folder() -> None:
    folders = {}
    for path in (SCRIPTS / "kubernetes_accept.yaml", K8S_JOB):
        for document in yaml.safe_load_all(path.read_text()):
            if document["kind"] == "Job":
                volumes = document["spec"]["template"]["spec"]["volumes"]
                folders[path.name] = {each["hostPath"]["path"] for each in volumes if "hostPath" in each}
    assert folders["kubernetes_accept.yaml"] and folders["k8s_job.yaml"]
    assert not folders["kubernetes_accept.yaml"] & folders["k8s_job.yaml"]
    assert "mounts it with `readOnly: true`" in K8S_JOB.read_text()
