"""A Kubernetes API server with one node, which runs a pod's container as a process of this machine.

It speaks as much of the API as the runner ``kubernetes`` uses: pods with logs and watches, and secrets. Every
object is checked against the official schemas of three Kubernetes versions. There is no container: a pod's
image is the path of a program, which gets the pod's arguments and environment.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import kubernetes_validate
from kubernetes_validate import utils

VERSIONS = ("1.33", "1.35", "1.37")

TOKEN = "suite-token"

# It parses a schema of megabytes anew for each manifest.
utils.schema_contents = cache(utils.schema_contents)


def check_manifest(manifest: dict[str, Any]) -> None:
    """Raise an error if a manifest does not match one of the schemas, or has unknown fields."""
    for version in VERSIONS:
        kubernetes_validate.validate(manifest, version, strict=True)


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


class Cluster:
    """The objects of the cluster, and its one node."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.pods: dict[str, dict[str, Any]] = {}
        self.secrets: dict[str, dict[str, Any]] = {}
        self.logs: dict[str, list[tuple[str, str]]] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.events: list[dict[str, Any]] = []
        self.room = True
        """Whether the scheduler binds new pods to the node."""
        self.quota_used = False
        """Whether the namespace's quota allows no more pods."""
        self.failing = 0
        """How many of the next requests fail with 500."""

    def create(self, kind: str, body: dict[str, Any], namespace: str) -> tuple[int, dict[str, Any]]:
        try:
            check_manifest({"apiVersion": "v1", "kind": kind, **body})
        except kubernetes_validate.ValidationError as error:
            return failure(422, "Invalid", f"{kind} is invalid: {error.message}")
        name = body["metadata"]["name"]
        body["metadata"] |= {"namespace": namespace, "uid": str(uuid.uuid4()), "creationTimestamp": now()}
        with self.lock:
            objects = self.pods if kind == "Pod" else self.secrets
            if kind == "Pod" and self.quota_used:
                return failure(403, "Forbidden", f'pods "{name}" is forbidden: exceeded quota: team')
            if name in objects:
                return failure(409, "AlreadyExists", f'{kind.lower()}s "{name}" already exists')
            objects[name] = {"apiVersion": "v1", "kind": kind, **body}
            if kind == "Pod":
                body["status"] = {"phase": "Pending"}
                objects[name]["status"] = body["status"]
                self.schedule(objects[name])
        return 201, objects[name]

    def schedule(self, pod: dict[str, Any]) -> None:
        bound = {"type": "PodScheduled", "status": "True"}
        if not self.room:
            bound |= {"status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available"}
        pod["status"]["conditions"] = [bound]
        self.notify("ADDED", pod)
        if self.room:
            threading.Thread(target=self.run, args=(pod,), daemon=True).start()

    def run(self, pod: dict[str, Any]) -> None:
        """Play the node's kubelet for one pod."""
        name, container = pod["metadata"]["name"], pod["spec"]["containers"][0]
        environment = {"PATH": os.environ["PATH"]}
        for source in container.get("envFrom", ()):
            environment |= self.secrets[source["secretRef"]["name"]]["stringData"]
        arguments = [argument.replace("$$(", "$(") for argument in container["args"]]
        with self.lock:
            self.logs[name] = []
            process = self.processes[name] = subprocess.Popen(
                [container["image"], *arguments],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self.container_is(pod, "Running", {"running": {"startedAt": now()}})
        assert process.stdout is not None
        for line in process.stdout:
            stamp = f"{datetime.now(UTC).isoformat(timespec='microseconds')[:26]}000Z"
            self.logs[name].append((stamp, line.decode().rstrip("\n")))
        code = process.wait()
        ended = {"exitCode": code if code >= 0 else 128 - code, "startedAt": now(), "finishedAt": now()}
        self.container_is(pod, "Failed" if code else "Succeeded", {"terminated": ended})

    def container_is(self, pod: dict[str, Any], phase: str, state: dict[str, Any], **status: str) -> None:
        """Set what the kubelet reports about a pod's container."""
        container = pod["spec"]["containers"][0]
        with self.lock:
            pod["status"] |= {
                "phase": phase,
                **status,
                "containerStatuses": [
                    {
                        "name": container["name"],
                        "image": container["image"],
                        "imageID": "",
                        "ready": phase == "Running",
                        "restartCount": 0,
                        "state": state,
                    }
                ],
            }
            self.notify("MODIFIED", pod)

    def delete(self, kind: str, name: str, grace: int) -> tuple[int, dict[str, Any]]:
        with self.lock:
            objects = self.pods if kind == "Pod" else self.secrets
            if name not in objects:
                return failure(404, "NotFound", f'{kind.lower()}s "{name}" not found')
            found = objects[name]
            if kind == "Secret":
                return 200, objects.pop(name)
            found["metadata"]["deletionTimestamp"] = now()
        threading.Thread(target=self.end, args=(name, grace), daemon=True).start()
        return 200, found

    def end(self, name: str, grace: int) -> None:
        if process := self.processes.get(name):
            end_group(process, signal.SIGTERM, grace)
            end_group(process, signal.SIGKILL, 5)
        with self.lock:
            if pod := self.pods.pop(name, None):
                self.notify("DELETED", pod)
            uid = pod["metadata"]["uid"] if pod else ""
            for secret in list(self.secrets.values()):  # what the garbage collector does
                owners = secret["metadata"].get("ownerReferences", ())
                if any(owner["uid"] == uid for owner in owners):
                    del self.secrets[secret["metadata"]["name"]]

    def notify(self, kind: str, pod: dict[str, Any]) -> None:
        with self.changed:
            self.events.append({"type": kind, "object": json.loads(json.dumps(pod))})
            self.changed.notify_all()

    def shut_down(self) -> None:
        for process in self.processes.values():
            end_group(process, signal.SIGKILL, 5)


def end_group(process: subprocess.Popen[bytes], number: int, seconds: float) -> None:
    try:
        os.killpg(process.pid, number)
        process.wait(seconds)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        return


def failure(code: int, reason: str, message: str) -> tuple[int, dict[str, Any]]:
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return code, status | {"code": code, "reason": reason, "message": message}


def selected(item: dict[str, Any], query: dict[str, str]) -> bool:
    labels = item["metadata"].get("labels", {})
    pairs = [part.partition("=") for part in query.get("labelSelector", "").split(",") if part]
    return all(labels.get(key) == value for key, _, value in pairs)


class Handler(BaseHTTPRequestHandler):
    """Requests for ``/api/v1/namespaces/<namespace>/<kind>[/<name>[/log]]``."""

    protocol_version = "HTTP/1.1"
    cluster: Cluster

    def handle_request(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        namespace, plural, *rest = url.path.removeprefix("/api/v1/namespaces/").split("/")
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.answer(*failure(401, "Unauthorized", "Unauthorized"))
        elif self.cluster.failing:
            self.cluster.failing -= 1
            self.answer(*failure(500, "InternalError", "etcdserver: request timed out"))
        elif namespace == "forbidden":
            message = f'{plural} is forbidden: User "airflow" cannot list resource "{plural}"'
            self.answer(*failure(403, "Forbidden", message))
        elif query.get("watch") in ("true", "True"):
            self.watch(query)
        elif rest[1:] == ["log"]:
            self.log(rest[0], query)
        else:
            kind = {"pods": "Pod", "secrets": "Secret"}[plural]
            self.answer(*self.call(kind, namespace, rest, body, query))

    def call(
        self, kind: str, namespace: str, names: list[str], body: dict[str, Any], query: dict[str, str]
    ) -> tuple[int, dict[str, Any]]:
        """Return the answer to a request for objects."""
        cluster = self.cluster
        objects = cluster.pods if kind == "Pod" else cluster.secrets
        if self.command == "POST":
            return cluster.create(kind, body, namespace)
        if self.command == "DELETE":
            return cluster.delete(kind, names[0], body.get("gracePeriodSeconds", 30))
        with cluster.lock:
            if not names:
                items = [item for item in objects.values() if selected(item, query)]
                return 200, {"kind": f"{kind}List", "apiVersion": "v1", "metadata": {}, "items": items}
            if names[0] not in objects:
                return failure(404, "NotFound", f'{kind.lower()}s "{names[0]}" not found')
            if self.command == "PATCH":
                objects[names[0]]["metadata"] |= body["metadata"]
            return 200, objects[names[0]]

    do_GET = do_POST = do_DELETE = do_PATCH = handle_request

    def log(self, name: str, query: dict[str, str]) -> None:
        assert query["timestamps"] in ("true", "True")
        if name in self.cluster.logs:
            lines = [f"{stamp} {line}\n" for stamp, line in self.cluster.logs[name]]
            self.write(200, "".join(lines).encode(), "text/plain")
        else:
            self.answer(*failure(400, "BadRequest", 'container "base" is waiting to start'))

    def watch(self, query: dict[str, str]) -> None:
        """Stream the events since the request; without a version, first the objects that there are."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        end = time.monotonic() + int(query["timeoutSeconds"])
        cluster, sent = self.cluster, 0
        try:
            while time.monotonic() < end:
                with cluster.changed:
                    if len(cluster.events) == sent:
                        cluster.changed.wait(0.5)
                    new, sent = cluster.events[sent:], len(cluster.events)
                for event in new:
                    if selected(event["object"], query):
                        data = json.dumps(event).encode() + b"\n"
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.write(b"0\r\n\r\n")
        except OSError:  # the client has gone
            self.close_connection = True

    def answer(self, code: int, body: dict[str, Any]) -> None:
        self.write(code, json.dumps(body).encode(), "application/json")

    def write(self, code: int, data: bytes, kind: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def serve() -> Iterator[tuple[str, Cluster]]:
    """Yield the address of a cluster's API server, and the cluster."""
    cluster = Cluster()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("ClusterHandler", (Handler,), {"cluster": cluster}))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", cluster
    server.shutdown()
    server.server_close()
    cluster.shut_down()


def kubeconfig(address: str) -> dict[str, Any]:
    """Return a client's configuration for the API server."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "suite", "cluster": {"server": address}}],
        "users": [{"name": "airflow", "user": {"token": TOKEN}}],
        "contexts": [{"name": "suite", "context": {"cluster": "suite", "user": "airflow"}}],
        "current-context": "suite",
    }
