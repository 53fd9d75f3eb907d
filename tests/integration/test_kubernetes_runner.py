"""The runner ``kubernetes`` with the provider's real client, on a server that speaks the API."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from dmls_core.airflow.runners.kubernetes.manifest import pod_name
from dmls_core.airflow.runners.kubernetes.runner import KubernetesRunner
from dmls_core.airflow.runners.runner import LOST
from dmls_core.airflow.settings import AirflowSettings
from dmls_core.errors import RunnerError
from dmls_core.testing.runners import RunnerSuite
from dmls_core.testing.trainer_program import Watch, wait_for
from tests.services.kubernetes_api import Cluster, check_manifest, kubeconfig, serve
from tests.support.run_nodes import NodesJourney
from tests.support.suite_bucket import serve_suite_bucket, suite_connection

ROOT = Path(__file__).parents[2]

TEMPLATE = {
    "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "teams"}, "annotations": {"cost-center": "42"}},
    "spec": {
        "nodeSelector": {"pool": "training"},
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "imagePullSecrets": [{"name": "registry"}],
        "serviceAccountName": "trainer",
        "automountServiceAccountToken": True,
        "securityContext": {"runAsUser": 0},
        "containers": [{"name": "base", "image": "other", "securityContext": {"privileged": True}}],
    },
}


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    yield from serve_suite_bucket()


@pytest.fixture
def api() -> Iterator[tuple[str, Cluster]]:
    yield from serve()


@pytest.fixture
def cluster(api) -> Cluster:
    return api[1]


@pytest.fixture
def settings(s3, api, monkeypatch) -> AirflowSettings:
    extra = {"kube_config": json.dumps(kubeconfig(api[0]))}
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", suite_connection(s3))
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps({"conn_type": "kubernetes", "extra": extra}))
    return AirflowSettings(
        root=f"s3://suite/{uuid.uuid4().hex}",
        runner="kubernetes",
        kubernetes_conn_id="cluster",
        kubernetes_namespace="ml",
        kubernetes_pod=TEMPLATE,
        memory="256m",
        cpus=1.5,
    )


class TestKubernetesRunner(NodesJourney, RunnerSuite):
    name = "kubernetes"

    @pytest.fixture
    def settings(self, settings, program) -> AirflowSettings:
        return settings.model_copy(update={"image": str(program)})

    @pytest.fixture(autouse=True)
    def count(self, cluster) -> None:
        self.pods = cluster.pods

    def members(self, _settings: AirflowSettings) -> int:
        return sum("deletionTimestamp" not in pod["metadata"] for pod in self.pods.values())

    def test_nodes_are_pods_with_the_shape_of_the_trainers(self, led, cluster, runner):
        key = led.trigger.key
        leader, *nodes = (cluster.pods[pod_name(name)] for name in (key, f"{key}-node1", f"{key}-node2"))
        (own,) = leader["spec"]["containers"]
        for pod in nodes:
            check_manifest({part: pod[part] for part in ("apiVersion", "kind", "metadata", "spec")})
            (container,) = pod["spec"]["containers"]
            assert container["args"] == ["node", own["args"][own["args"].index("--out") + 1]]
            address = {"name": "DMLS_NODE_HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
            assert container["env"] == own["env"] == [address]
            for part in ("image", "resources", "securityContext", "volumeMounts"):
                assert container[part] == own[part]
            for part in ("securityContext", "automountServiceAccountToken", "tolerations", "nodeSelector"):
                assert pod["spec"][part] == leader["spec"][part]
            secret = cluster.secrets[pod["metadata"]["name"]]["stringData"]
            assert secret["DMLS_NODE_TRAINERS"] == key
            assert "DMLS_STUDY_URL" not in secret
        runner.stop(key)
        assert (cluster.pods, cluster.secrets) == ({}, {})

    @pytest.mark.usefixtures("with_nodes")
    def test_a_cluster_that_refuses_the_trainer_keeps_no_nodes(self, launch, cluster):
        created, create = [], cluster.create

        def refuse_the_third(kind, body, namespace):
            created.append(kind)
            cluster.quota_used = created.count("Pod") > 2
            return create(kind, body, namespace)

        cluster.create = refuse_the_third
        with pytest.raises(RunnerError, match="exceeded quota: team"):
            launch("hang").start()
        assert cluster.pods == {}

    # -- what only a cluster has -----------------------------------------------------------------------

    def test_the_pod_is_hardened_whatever_the_template_says(self, hanging, cluster, platform):
        _, watch = hanging
        (pod,) = cluster.pods.values()
        check_manifest({key: pod[key] for key in ("apiVersion", "kind", "metadata", "spec")})
        spec, (container,) = pod["spec"], pod["spec"]["containers"]
        assert pod["metadata"]["name"] == pod_name(watch.trigger.key)
        assert spec["automountServiceAccountToken"] is False
        assert spec["restartPolicy"] == "Never"
        assert not spec.get("hostNetwork")
        assert spec["securityContext"] == {
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "runAsGroup": 10001,
            "fsGroup": 10001,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "privileged": False,
            "readOnlyRootFilesystem": True,
        }
        amounts = {"memory": str(256 << 20), "cpu": "1.5"}
        assert container["resources"] == {"limits": amounts, "requests": amounts}
        assert container["image"] == platform.image
        assert pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "teams"
        assert pod["metadata"]["annotations"]["cost-center"] == "42"
        assert pod["metadata"]["annotations"]["dmls.dag"] == "dmls.suite.hang"
        assert spec["nodeSelector"] == {"pool": "training"}
        assert spec["serviceAccountName"] == "trainer"
        assert [toleration["key"] for toleration in spec["tolerations"]] == ["gpu"]

    def test_secrets_are_passed_by_reference_and_end_with_the_pod(self, hanging, cluster, runner):
        _, watch = hanging
        (pod,), (secret,) = cluster.pods.values(), cluster.secrets.values()
        assert "study-secret" not in json.dumps(pod)
        assert "study-secret" in secret["stringData"]["DMLS_STUDY_URL"]
        wait_for(lambda: "ownerReferences" in secret["metadata"])
        assert secret["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
        runner.stop(watch.trigger.key)
        assert (cluster.pods, cluster.secrets) == ({}, {})

    def test_a_gpu_is_a_resource_of_the_pod(self, launch, cluster, runner):
        search = launch("succeed")
        search.operator.plan = {"worker": 0, "engine": "gpu"}
        trigger = search.start()
        (pod,) = cluster.pods.values()
        assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
        runner.stop(trigger.key)

    def test_a_pod_without_a_node_says_why_and_starts_later(self, launch, cluster):
        cluster.room = False
        search = launch("succeed")
        watch = Watch(search.start())
        wait_for(lambda: "The pod waits: Unschedulable: 0/1 nodes are available" in search.log.lines)
        cluster.room = True
        (pod,) = cluster.pods.values()
        cluster.schedule(pod)
        watch.join(60)
        assert search.finish(watch.event)["score"] == 0.95
        assert search.log.text.count("Unschedulable") == 1
        assert "a line of standard output" in search.log.lines

    @pytest.mark.parametrize(
        ("phase", "state", "status", "message"),
        [
            (
                "Failed",
                {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
                {},
                f"was killed because it needed more than {256 << 20} bytes of memory",
            ),
            (
                "Failed",
                {"terminated": {"exitCode": 137, "reason": "Error"}},
                {"reason": "Evicted", "message": "The node was low on resource: memory"},
                "was ended by the cluster: Evicted: The node was low on resource: memory",
            ),
            (
                "Pending",
                {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}},
                {},
                "could not start: ImagePullBackOff: Back-off pulling image",
            ),
        ],
        ids=["memory", "evicted", "image"],
    )
    def test_what_the_cluster_did_is_named(self, hanging, cluster, phase, state, status, message):
        search, watch = hanging
        (pod,) = cluster.pods.values()
        cluster.container_is(pod, phase, state, **status)
        watch.join(60)
        with pytest.raises(RunnerError, match=f"the trainer {message}"):
            search.finish(watch.event)
        assert cluster.pods == {}

    def test_an_api_that_fails_for_a_while_loses_no_trainer(self, hanging, cluster, runner):
        _, watch = hanging
        cluster.failing = 20
        wait_for(lambda: cluster.failing == 0)
        assert watch.is_alive()
        assert runner.exit_of(watch.trigger.key) is None

    def test_a_secret_whose_pod_never_came_is_reaped(self, runner, cluster, launch, monkeypatch):
        search = launch("succeed")
        trigger = search.start()
        with cluster.lock:
            cluster.pods.clear()
        monkeypatch.setattr(runner, "min_age_seconds", -60)
        assert runner.reap(lambda *_: False) == [pod_name(trigger.key)]
        assert cluster.secrets == {}
        assert runner.exit_of(trigger.key).code == LOST

    def test_a_pod_that_the_cluster_refuses_is_named(self, launch, cluster):
        cluster.quota_used = True
        with pytest.raises(RunnerError, match="does not start the trainer's pod: .* exceeded quota: team"):
            launch("succeed").start()


def test_a_role_that_lacks_a_right_is_named_with_the_remedy(settings):
    settings = settings.model_copy(update={"kubernetes_namespace": "forbidden"})
    (lack,) = KubernetesRunner(settings).check()
    assert 'cannot list resource "pods"' in lack
    assert "docs/how-to/kubernetes.md" in lack


def test_no_cluster_is_named_with_the_remedy(settings, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("AIRFLOW_CONN_CLUSTER")
    (lack,) = KubernetesRunner(
        settings.model_copy(update={"kubernetes_conn_id": "kubernetes_default"})
    ).check()
    assert "no Kubernetes API answers" in lack


def test_the_manifests_of_the_guide_match_the_schemas():
    manifests = manifests_of("role") + manifests_of("triton") + manifests_of("hpa")
    assert [manifest["kind"] for manifest in manifests] == [
        "Role",
        "RoleBinding",
        "Deployment",
        "Service",
        "Service",
        "HorizontalPodAutoscaler",
    ]
    for manifest in manifests:
        check_manifest(manifest)


def test_the_autoscalers_of_the_guide_scale_its_deployment():
    deployment, *services = manifests_of("triton")
    (autoscaler,), (keda,) = manifests_of("hpa"), manifests_of("keda")
    assert autoscaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert keda["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert all(service["spec"]["selector"] == labels for service in services)
    ports = {port["name"] for port in deployment["spec"]["template"]["spec"]["containers"][0]["ports"]}
    assert {port["targetPort"] for service in services for port in service["spec"]["ports"]} <= ports


def manifests_of(title):
    text = (ROOT / "docs/how-to/kubernetes.md").read_text()
    (block,) = text.split(f'```yaml title="{title}.yaml"\n')[1:]
    return list(yaml.safe_load_all(block.partition("```")[0]))
