"""The tasks of a job's DAG, in one module each; ``search`` is the runners' ``TrainerOperator``."""
