"""On which engine a search runs."""

from __future__ import annotations

from dmls_core.airflow.placement import choose_engine, trainer_engine


def test_each_of_several_models_chooses_its_engine_if_there_is_a_gpu(job):
    both, forest = job(1, "random-forest-classifier", "lightgbm-classifier").spec, job(1).spec
    assert choose_engine(both, gpus=1) == "gpu"
    assert trainer_engine(both, "gpu") == "auto"
    assert trainer_engine(both, "cpu") == "cpu"
    assert trainer_engine(forest, "gpu") == "gpu"
    assert choose_engine(both, gpus=0) == "cpu"
