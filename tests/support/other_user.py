"""What another user of the machine tries against a platform: a program that gives up its rights first.

``python other_user.py ADDRESSES FOLDERS`` (JSON) prints what succeeded and what ``ps`` shows.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import psycopg
import tritonclient.grpc
import tritonclient.http

OTHER_USER = 65534

NOWHERE = "127.0.0.1:9"


def give_up_rights() -> None:
    """Become a user without groups, rights and variables."""
    os.chdir("/")
    os.setgroups([])
    os.setresgid(OTHER_USER, OTHER_USER, OTHER_USER)
    os.setresuid(OTHER_USER, OTHER_USER, OTHER_USER)
    os.environ.clear()


def http(method: str, url: str, body: Any = None) -> Any:
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        url, data=data, method=method, headers={"Content-Type": "application/json"}
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as answer:
        return answer.status


def attempts(at: dict[str, str], folders: list[str]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the name and the call of each attempt."""
    yield from _of_triton(at)
    yield from _of_mlflow(at["mlflow"])
    for method, path in (
        ("GET", "/"),
        ("GET", "/dmls"),
        ("GET", "/dmls/incoming/demo/iris/spec.toml"),
        ("PUT", "/dmls/incoming/other/job/spec.toml"),
        ("DELETE", "/dmls/incoming/demo/iris/spec.toml"),
    ):
        yield (
            f"s3 {method} {path}",
            lambda m=method, p=path: http(m, at["s3"] + p, b"x" if m == "PUT" else None),
        )
    for path in ("/api/v2/dags", "/dmls/api/v1/jobs", "/api/v2/connections"):
        yield f"airflow {path}", lambda p=path: http("GET", at["airflow"] + p)
    for user in ("postgres", "airflow", "mlflow", "optuna"):
        yield (
            f"postgres {user}",
            lambda u=user: psycopg.connect(f"postgresql://{u}@{at['postgres']}/{u}", connect_timeout=10),
        )
    for port in ("master", "volume", "filer"):
        for path in ("/dir/assign", "/col/delete?collection=dmls", "/1,1", "/buckets/"):
            yield f"s3 {port} {path}", lambda p=port, u=path: http("GET", f"http://{at[p]}{u}")
        yield f"s3 {port} gRPC", lambda p=port: _call_seaweedfs(at[f"{p}_grpc"], p)
    for folder in folders:
        yield f"list {folder}", lambda f=folder: [*Path(f).iterdir()]


def _of_triton(at: dict[str, str]) -> Iterator[tuple[str, Callable[[], Any]]]:
    override = {"config": json.dumps({"backend": "python", "max_batch_size": 0})}
    for name, module in (("http", tritonclient.http), ("grpc", tritonclient.grpc)):
        client = module.InferenceServerClient(at[f"triton_{name}"])
        for call in (
            lambda c=client: c.load_model("demo.iris"),
            lambda c=client: c.load_model("demo.iris", **override),
            lambda c=client: c.unload_model("demo.iris"),
            lambda c=client: c.get_model_repository_index(),
            lambda c=client: c.register_system_shared_memory("mine", "/mine", 64),
            lambda c=client: c.get_system_shared_memory_status(),
            lambda c=client: c.unregister_system_shared_memory(),
            lambda c=client: c.get_log_settings(),
            lambda c=client: c.update_log_settings({"log_verbose_level": 1}),
            lambda c=client: c.get_trace_settings(),
            lambda c=client: c.update_trace_settings(settings={"trace_level": ["TIMESTAMPS"]}),
        ):
            yield f"triton {name} {call.__code__.co_names[0]}", call


def _of_mlflow(url: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    model = {"name": "demo.iris"}
    for method, path, body in (
        ("POST", "2.0/mlflow/experiments/search", {"max_results": 1}),
        ("POST", "2.0/mlflow/experiments/create", {"name": "mine"}),
        ("POST", "2.0/mlflow/registered-models/alias", model | {"alias": "champion", "version": "1"}),
        ("DELETE", "2.0/mlflow/registered-models/alias", model | {"alias": "champion"}),
        ("POST", "2.0/mlflow/model-versions/set-tag", model | {"version": "1", "key": "a", "value": "b"}),
        ("DELETE", "2.0/mlflow/registered-models/delete", model),
        ("GET", "2.0/mlflow/registered-models/search", None),
        ("GET", "2.0/mlflow-artifacts/artifacts", None),
        ("PUT", "2.0/mlflow-artifacts/artifacts/1/models/m/artifacts/model.py", b"import os"),
        ("DELETE", "2.0/mlflow-artifacts/artifacts/1", None),
        ("POST", "2.0/mlflow/users/create", {"username": "mine", "password": "mine mine mine"}),
        ("GET", "2.0/mlflow/users/get?username=admin", None),
        ("POST", "3.0/mlflow/traces/search", {}),
    ):
        yield f"mlflow {method} {path}", lambda m=method, p=path, b=body: http(m, f"{url}/api/{p}", b)
        if path.startswith("2.0/mlflow/"):
            ajax = f"{url}/ajax-api/{path}"
            yield f"mlflow {method} ajax {path}", lambda m=method, u=ajax, b=body: http(m, u, b)
    yield "mlflow GraphQL", lambda: http("POST", f"{url}/graphql", {"query": "{__typename}"})
    yield "mlflow artifact", lambda: http("GET", f"{url}/get-artifact?path=a&run_uuid=b")
    yield (
        "mlflow version artifact",
        lambda: http("GET", f"{url}/model-versions/get-artifact?name=a&version=1"),
    )


def _call_seaweedfs(address: str, part: str) -> Any:
    """Call a method without arguments by plain gRPC, as SeaweedFS's shell does."""
    method = {
        "master": "/master_pb.Seaweed/Statistics",
        "volume": "/volume_server_pb.VolumeServer/VolumeServerStatus",
        "filer": "/filer_pb.SeaweedFiler/GetFilerConfiguration",
    }[part]
    with grpc.insecure_channel(address) as channel:
        return len(channel.unary_unary(method)(b"", timeout=10))


def processes() -> str:
    """Return what ``ps`` shows of all processes, and each environment that this user may read."""
    seen = []
    for folder in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                seen.append((folder / name).read_text(errors="replace").replace("\0", " "))
            except OSError:
                continue
    return "\n".join(seen)


def main() -> None:
    addresses, folders = (json.loads(word) for word in sys.argv[1:])
    # A rehearsal: the libraries load what they need, which the other user may not read.
    for _, attempt in attempts(dict.fromkeys(addresses, NOWHERE) | {"mlflow": f"http://{NOWHERE}"}, []):
        with suppress(Exception):
            attempt()
    give_up_rights()
    succeeded, refused = {}, {}
    for name, attempt in attempts(addresses, folders):
        try:
            succeeded[name] = str(attempt())
        except Exception as error:  # noqa: BLE001 - the libraries' errors have no common root
            refused[name] = f"{type(error).__name__}: {error}"
    json.dump({"succeeded": succeeded, "refused": refused, "processes": processes()}, sys.stdout)


if __name__ == "__main__":
    main()
