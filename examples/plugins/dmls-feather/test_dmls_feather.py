import polars as pl

from dmls_core.intake.schema_inference import infer_file_schema
from dmls_core.testing import FormatSuite


class TestFeatherFormat(FormatSuite):
    name = "feather"

    def write(self, columns, path):
        pl.DataFrame(columns).write_ipc(path)

    def test_a_spec_is_drafted_from_a_file(self, tmp_path):
        path = self.written({"size": [0.5, 1.5, 2.5, 4.0] * 25, "colour": ["red", "blue"] * 50}, tmp_path)

        schema = infer_file_schema(path)

        assert (schema["target"], schema["rows"]) == ("colour", 100)
