"""Where the platform's things are: what every service's definition is made from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dmls_core.devstack.identity import Identity

MODELS_FOLDER = "triton_models"
"""The model repository of a project, beside the state folder."""

BUCKET = "dmls"
REGION = "us-east-1"

HOME_VARIABLE = "DMLS_HOME"
"""Names the state folder to every command of DMLS."""


@dataclass(frozen=True, slots=True)
class Context:
    """One platform's folders, ports and credentials.

    Attributes:
        state: the state folder.
        identity: id, ports and credentials.
    """

    state: Path
    identity: Identity

    @property
    def runtime(self) -> Path:
        """The short folder for sockets and temporary files."""
        return Path(self.identity.runtime)

    @property
    def root(self) -> str:
        """URL of the store's root."""
        return f"s3://{BUCKET}"

    @property
    def model_repository(self) -> Path:
        """The project's ``triton_models`` where there is one, else a folder in the state."""
        beside = self.state.parent / MODELS_FOLDER
        return beside if beside.is_dir() else self.state / MODELS_FOLDER

    @property
    def inference_log(self) -> Path:
        """The folder that Triton writes sampled requests to, until the monitor fetches them."""
        return self.state / "inference_log"

    def port(self, name: str) -> int:
        """Return the port called ``name``."""
        return self.identity.ports[name]

    def secret(self, name: str) -> str:
        """Return the credential called ``name``."""
        return self.identity.credentials[name]

    def address(self, name: str) -> str:
        """Return ``host:port`` of the port called ``name``."""
        return f"127.0.0.1:{self.port(name)}"

    def url(self, name: str) -> str:
        """Return the HTTP URL of the port called ``name``."""
        return f"http://{self.address(name)}"

    def s3_environment(self) -> dict[str, str]:
        """Return the variables with which boto3 reaches the store."""
        return {
            "AWS_ACCESS_KEY_ID": self.secret("s3_access_key"),
            "AWS_SECRET_ACCESS_KEY": self.secret("s3_secret_key"),
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ENDPOINT_URL": self.url("s3"),
        }
