"""What the setting ``kubernetes_pod`` may leave out."""

from __future__ import annotations

import pytest

from tests.support.pods import pod_from


@pytest.mark.parametrize(
    "template",
    [{}, {"metadata": {"labels": {"queue": "training"}}}, {"spec": {"nodeSelector": {"pool": "training"}}}],
)
def test_a_template_without_containers_keeps_the_trainers(template, monkeypatch):
    pod = pod_from(template, monkeypatch)
    assert [container["args"] for container in pod["spec"]["containers"]] == [
        ["train", "spec.toml", "data.csv"]
    ]
    for part, fields in template.items():
        for field, value in fields.items():
            assert value.items() <= pod[part][field].items()
