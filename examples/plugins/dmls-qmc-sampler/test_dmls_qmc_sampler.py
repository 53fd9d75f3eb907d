from dmls_core.testing import SamplerSuite


class TestQMC(SamplerSuite):
    name = "qmc"
