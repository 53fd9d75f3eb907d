"""The images and the compose file."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
import yaml

from dmls_core.cli import demo
from tests.services.docker_engine import DockerEngine, EngineMissingError, apt_install
from tests.services.postgres_server import PostgresServer

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yaml"
DOCKERFILES = sorted(ROOT.glob("images/*/Dockerfile"))
USER = "10001:10001"


# -- compose -------------------------------------------------------------------------------------------


def required() -> list[str]:
    """Variables without which the stack does not start."""
    return sorted(set(re.findall(r"\$\{(\w+):\?", COMPOSE.read_text())))


@pytest.fixture(scope="session")
def compose() -> list[str]:
    """Docker's compose command, whichever of the two there is."""
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    if (
        shutil.which("docker")
        and subprocess.run(["docker", "compose", "version"], capture_output=True).returncode == 0
    ):
        return ["docker", "compose"]
    try:
        apt_install(["docker-compose"])
    except EngineMissingError as error:
        pytest.skip(f"docker-compose: {error}")
    return ["docker-compose"]


def config(compose: list[str], variables: dict[str, str], *more: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name not in required()}
    files = [option for file in ("docker-compose.yaml", *more) for option in ("-f", file)]
    return subprocess.run(
        [*compose, *files, "config"], cwd=ROOT, env=clean | variables, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    "more",
    [[], ["docker-compose.gpu.yaml"], ["docker-compose.s3.yaml"], ["docker-compose.scale.yaml"]],
    ids=["cpu", "gpu", "s3", "scale"],
)
def test_compose_accepts_the_stack(compose, more):
    done = config(compose, dict.fromkeys(required(), "1"), *more)
    assert done.returncode == 0, done.stderr
    services = yaml.safe_load(done.stdout)["services"]
    assert set(services) >= {"postgres", "s3", "mlflow", "triton", "airflow-scheduler", "airflow-api-server"}


@pytest.mark.parametrize("name", required())
def test_compose_refuses_to_start_without_a_secret(compose, name):
    done = config(compose, {other: "1" for other in required() if other != name})
    assert done.returncode != 0
    assert name in done.stderr


def test_no_secret_has_a_default():
    secrets = re.findall(r"\$\{(\w*(?:PASSWORD|SECRET|KEY)\w*)(:?[-?]?)", COMPOSE.read_text())
    assert {name for name, default in secrets if default.endswith("-")} == set()
    assert {name for name, _ in secrets} <= set(required())


def test_every_port_is_published_on_loopback_alone():
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert ports
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_every_lasting_service_is_watched():
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    lasting = {name for name, service in services.items() if service.get("restart") == "unless-stopped"}
    # These serve nothing: they end if they fail.
    serving = {name for name in lasting if "healthcheck" in services[name]}
    assert lasting - serving == {"airflow-clean", "s3-guard"}


def test_each_image_is_built_by_one_service():
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    built = [service["image"] for service in services.values() if "build" in service]
    assert len(set(built)) == len(built) == len(DOCKERFILES)


def test_postgres_is_healthy_once_its_last_database_is_made():
    """While the databases are made, the server listens on its socket alone."""
    made = re.findall(r"CREATE DATABASE (\w+)", (ROOT / "images/postgres/databases.sh").read_text())
    check = yaml.safe_load(COMPOSE.read_text())["services"]["postgres"]["healthcheck"]["test"]
    asked = dict(zip(check[2::2], check[3::2], strict=True))
    assert (asked["--host"], asked["--dbname"]) == ("127.0.0.1", made[-1])


@pytest.mark.parametrize("part", ["scheduler", "triggerer", "dag_processor"])
def test_a_part_of_airflow_is_as_healthy_as_its_heartbeat(part):
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    _, *_, program, named = services[f"airflow-{part.replace('_', '-')}"]["healthcheck"]["test"]
    codes = []
    for state in ("healthy", "unhealthy"):
        states = dict.fromkeys(("scheduler", "triggerer", "dag_processor"), "healthy") | {part: state}
        answer = quote(json.dumps({key: {"status": value} for key, value in states.items()}))
        ours = program.replace("http://airflow-api-server:8080/api/v2/monitor/health", f"data:,{answer}")
        assert ours != program
        codes.append(subprocess.run([sys.executable, "-c", ours, named]).returncode)
    assert codes == [0, 1]


def test_grafana_finds_its_dashboard_and_the_dashboard_its_data():
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    mounts = dict(volume.removesuffix(":ro").split(":") for volume in services["grafana"]["volumes"])
    inside = {there: ROOT / here for here, there in mounts.items() if here.startswith("./")}
    provisioning = inside["/etc/grafana/provisioning"]  # where Grafana's image looks
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yaml").read_text())["datasources"]
    (provider,) = yaml.safe_load((provisioning / "dashboards/dmls.yaml").read_text())["providers"]
    home = Path(services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    board = (inside[provider["options"]["path"]] / home.name).read_text()
    assert str(home.parent) == provider["options"]["path"]
    assert set(re.findall(r'"type": "prometheus",\s*"uid": "(\w+)"', board)) == {source["uid"]}
    assert source["url"] == "http://prometheus:9090"
    assert json.loads(board)["uid"]


def test_the_stack_configures_the_bundle_as_the_docs_say(compose):
    services = yaml.safe_load(config(compose, dict.fromkeys(required(), "1")).stdout)["services"]
    environment = services["airflow-scheduler"]["environment"]
    (entry,) = json.loads(environment["AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST"])
    settings = entry["kwargs"]
    page = (ROOT / "docs/reference/settings.md").read_text()
    assert entry["classpath"] in (ROOT / "docs/how-to/install.md").read_text()
    assert (settings["root"], settings["runner"], settings["triton_repository"]) == (
        "s3://dmls",
        "docker",
        "/models",
    )
    assert [name for name in settings if f"`{name}`" not in page] == []
    for name in ("airflow-scheduler", "airflow-api-server", "triton"):
        assert "models:/models" in str(services[name]["volumes"]), f"{name} does not see the model repository"
    assert json.loads(environment["AIRFLOW_CONN_AWS_DEFAULT"])["conn_type"] == "aws"


def words(command: str | list[str]) -> list[str]:
    """Return a command's words; the two versions of compose write it differently."""
    return command.split() if isinstance(command, str) else command


def test_with_a_repository_in_s3_triton_reads_what_airflow_writes(compose):
    variables = dict.fromkeys(required(), "1") | {"TRITON_REPOSITORY": "s3://dmls/models"}
    services = yaml.safe_load(config(compose, variables, "docker-compose.s3.yaml").stdout)["services"]
    environment = services["airflow-scheduler"]["environment"]
    (entry,) = json.loads(environment["AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST"])
    assert entry["kwargs"]["triton_repository"] == "s3://dmls/models"
    plain = yaml.safe_load(config(compose, variables).stdout)["services"]["triton"]
    ours, others = (set(words(service["command"])) for service in (services["triton"], plain))
    assert ours - others == {"--model-repository=s3://http://s3:8333/dmls/models"}
    assert others - ours == {"--model-repository=/models"}
    assert "/inference-log" in str(services["triton"]["volumes"])


def test_deployments_reach_all_servers_of_a_scaled_stack(compose):
    ranges = {f"TRITON_{name}_PORT": f"80{i}0-80{i}3" for i, name in enumerate(("HTTP", "GRPC", "METRICS"))}
    variables = dict.fromkeys(required(), "1") | {
        "TRITON_HTTP": "dns:triton:8000",
        "TRITON_GRPC": "dns:triton:8001",
        **ranges,
    }
    done = config(compose, variables, "docker-compose.scale.yaml")
    assert done.returncode == 0, done.stderr
    services = yaml.safe_load(done.stdout)["services"]
    environment = services["airflow-scheduler"]["environment"]
    (entry,) = json.loads(environment["AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST"])
    addresses = entry["kwargs"]["triton_http"], entry["kwargs"]["triton_grpc"]
    assert addresses == ("dns:triton:8000", "dns:triton:8001")
    assert services["triton"]["stop_grace_period"] == "40s"
    assert "8000-8003" in json.dumps(services["triton"]["ports"])


# -- images --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.parent.name)
def test_what_a_dockerfile_copies_is_in_the_context(file):
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for source, *others in re.findall(
        r"^COPY (?!--from)(\S+) (?:(\S+) )?\S+$", file.read_text(), re.MULTILINE
    ):
        for path in filter(lambda p: p and p != ".", (source, *others)):
            assert (ROOT / path).exists(), path
            assert any(path == entry or path.startswith(f"{entry}/") for entry in kept), path


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.parent.name)
def test_an_image_runs_without_root_on_a_base_of_choice(file):
    text = file.read_text()
    final = text[text.rindex("FROM ") :]
    assert f"USER {USER}" in final
    assert "ARG PYTHON_IMAGE" in text
    assert re.findall(r"^FROM (?!\$\{PYTHON_IMAGE\}|\w[\w-]* AS|base\b|build\b)", text, re.MULTILINE) == []


def test_airflow_finds_a_name_for_its_user():
    """Else every one of its commands is refused."""
    text = (ROOT / "images/airflow/Dockerfile").read_text()
    assert re.search(rf"'\w+:x:{USER}:[^']*' >> /etc/passwd", text[text.rindex("FROM ") :])


@pytest.fixture(scope="module")
def submission(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("submission")
    demo.write_csv(folder / "iris.csv")
    spec = demo.SPEC.read_text().replace("max = 500", "max = 60").replace("n_trials = 5", "n_trials = 2")
    (folder / "spec.toml").write_text(spec)
    folder.chmod(0o755)
    return folder


LOCKED_DOWN = (
    "--rm --network none --read-only --cap-drop ALL --security-opt no-new-privileges --pids-limit 1024 "
    "--memory 4g --tmpfs /tmp:rw,nosuid,nodev"
).split()


@pytest.mark.timeout(1200)
def test_the_trainer_trains_locked_down(
    docker_engine: DockerEngine, trainer_image: str, submission: Path, tmp_path
):
    results = tmp_path / "out"
    results.mkdir()
    results.chmod(0o777)
    mounts = ["-v", f"{submission}:/in:ro", "-v", f"{results}:/out"]
    done = docker_engine.docker(
        *("run", *LOCKED_DOWN, *mounts, trainer_image),
        *(
            "train",
            "/in/spec.toml",
            "/in/iris.csv",
            "--out",
            "/out",
            "--team",
            "demo",
            "--name",
            "iris",
            "--json",
        ),
    )
    result = json.loads(done.stdout)
    assert result == json.loads((results / "result.json").read_text())
    assert (result["team"], result["job"], result["engine"], result["n_trials"]) == ("demo", "iris", "cpu", 2)
    assert result["score"] > 0.85
    assert (results / "model/checkpoint.tl").stat().st_uid == 10001


@pytest.mark.nightly(
    "`e2e/test_workers.py` shares a search, `test_the_trainer_trains_locked_down` trains in a container"
)
@pytest.mark.timeout(1200)
def test_containers_share_a_search_over_the_hosts_network(
    docker_engine: DockerEngine,
    trainer_image: str,
    submission: Path,
    postgres: PostgresServer,
    tmp_path,
    monkeypatch,
):
    """As the docker runner starts them: the address comes in the environment and is on no command line."""
    results = tmp_path / "out"
    results.mkdir()
    results.chmod(0o777)
    (tmp_path / "spec.toml").write_text((submission / "spec.toml").read_text() + "\n[search]\nworkers = 2\n")
    postgres.empty()
    monkeypatch.setenv("DMLS_STUDY_URL", postgres.study_url)
    options = [option for option in LOCKED_DOWN if option != "--rm"]
    options[options.index("none")] = "host"
    options += [
        "-v",
        f"{submission}:/in:ro",
        "-v",
        f"{tmp_path}/spec.toml:/spec.toml:ro",
        "-v",
        f"{results}:/out",
    ]
    train = ["train", "/spec.toml", "/in/iris.csv", "--out", "/out", "--run-key", "together"]
    started = [
        docker_engine.docker(
            *("run", "--detach", *options, "--env", "DMLS_STUDY_URL", trainer_image, *train),
            *("--worker", str(worker)),
        ).stdout.strip()
        for worker in range(2)
    ]
    try:
        codes = docker_engine.docker("wait", *started).stdout.split()
        logs = [docker_engine.docker("logs", container) for container in started]
        assert codes == ["0", "0"], [log.stderr for log in logs]
        found = json.loads(docker_engine.docker("inspect", *started).stdout)
    finally:
        docker_engine.docker("rm", "--force", *started, check=False)

    assert json.loads((results / "result.json").read_text())["n_trials"] == 2
    assert len(list((results / "trials").glob("*.json"))) == 2
    password = postgres.context.secret("optuna_db_password")
    assert all(password not in json.dumps([one["Path"], one["Args"]]) for one in found)
    assert all(password not in log.stdout + log.stderr for log in logs)
    assert postgres.rows("SELECT count(*) FROM studies") == [(0,)]


@pytest.mark.timeout(1200)
def test_a_mistake_of_the_user_is_exit_code_1(
    docker_engine: DockerEngine, trainer_image: str, submission: Path
):
    done = docker_engine.docker(
        *("run", *LOCKED_DOWN, "-v", f"{submission}:/in:ro", trainer_image),
        *("train", "/in/iris.csv", "/in/iris.csv", "--out", "/tmp/out"),
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr


INSIDE = """
import importlib.util, os, pathlib, sys
import dmls_core
assert os.getuid() == 10001 and os.environ["HOME"] == "/tmp"
assert not [name for name in ("airflow", "pip") if importlib.util.find_spec(name)]
folder = pathlib.Path(dmls_core.__file__).parent
assert list(folder.glob("__pycache__/*.pyc")), "bytecode is not compiled"
assert (folder / "devstack/requirements/triton.txt").is_file()
"""


@pytest.mark.timeout(1200)
def test_what_the_trainers_image_holds(docker_engine: DockerEngine, trainer_image: str):
    found = json.loads(docker_engine.docker("image", "inspect", trainer_image).stdout)[0]["Config"]
    assert found["User"] == USER
    assert found["Entrypoint"] == ["dmls"]
    assert found["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert not [value for value in found["Env"] if "INDEX" in value]
    docker_engine.docker("run", *LOCKED_DOWN, "--entrypoint", "python", trainer_image, "-c", INSIDE)
