from dmls_core.testing import SamplerSuite


class TestQMC(SamplerSuite):
    """The strategy of docs/extending/samplers.md."""

    name = "qmc"
