"""The ``model.py`` of a linear model in Triton's Python backend."""

from pathlib import Path

import triton_python_backend_utils as pb_utils
from predictor import load_model


class TritonPythonModel:
    """One instance of a version."""

    def initialize(self, args):
        self.predict = load_model(Path(args["model_repository"]) / args["model_version"])

    def execute(self, requests):
        responses = []
        for request in requests:
            rows = pb_utils.get_input_tensor_by_name(request, "input__0").as_numpy()
            outputs = self.predict(rows).reshape(len(rows), -1)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("output__0", outputs)]))
        return responses
