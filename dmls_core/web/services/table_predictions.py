"""Predict many rows with a job's table endpoint: JSON, CSV or Parquet in and out."""

from __future__ import annotations

from dmls_core.airflow.settings import airflow_settings, open_repository
from dmls_core.data.bad_cells import describe_cells
from dmls_core.data.encoder import CellError
from dmls_core.data.request_rows import read_rows, write_rows
from dmls_core.errors import DataError
from dmls_core.store import layout
from dmls_core.web.services.predictions import SECONDS, read_served_encoder


def predict_table(
    team: str, name: str, content: bytes, media_type: str, accept: str, request_id: str
) -> bytes:
    """Return the predictions for rows in ``media_type``, in their order, as ``accept``.

    Both are one of ``request_rows.MEDIA_TYPES``. The table endpoint gets the rows in batches, which one
    version answers; the inference log has them under ``request_id``.

    Raises:
        DataError: the rows are not of this format, are too many, lack columns of the model or have others,
            or a value is not a number where one is needed.
        NotFoundError: no version is served.
        ServingError: Triton does not answer.
    """
    from dmls_core.serving import connect

    settings = airflow_settings()
    model = layout.model_name(team, name)
    _, encoder = read_served_encoder(open_repository(settings), model)
    rows = read_rows(content, media_type, encoder.feature_names, encoder.target.name)
    try:
        with connect(model, grpc=settings.triton_grpc, timeout=SECONDS) as served:
            predictions = served.predict(rows.columns, request_id=request_id)
    except DataError as error:
        if isinstance(error.__cause__, CellError):
            raise describe_cells(error.__cause__, locate=rows.locate) from error
        raise
    return write_rows(predictions, accept)
