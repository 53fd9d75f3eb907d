"""Processes of a real Triton server that are killed: the trigger reloads their models within seconds."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import ExitStack, contextmanager

import numpy as np
import psutil
import pytest

from dmls_core.airflow.operations.interruption_trigger import InterruptionTrigger
from dmls_core.devstack.supervisor import wait_until
from dmls_core.serving import Repository
from dmls_core.serving.deployment.deployment import Deployment
from dmls_core.serving.deployment.reconcile import differences
from dmls_core.serving.deployment.verification import GoldenRows
from dmls_core.serving.repository.intents import read_intent
from dmls_core.serving.repository.options import ScalingChoice, write_scaling_choice
from dmls_core.serving.triton.model_config import Scaling, table_name
from dmls_core.store import open_store, read_process_failures
from tests.services.triton_server import new_triton
from tests.support.table_endpoint import Served
from tests.support.trained_run import trained_run, user_rows

ROWS = user_rows(40, seed=3)
"""More than the table endpoint answers without the forest's process."""

HEALED_SECONDS = 30
SUCCESSES = 20


@pytest.fixture(scope="module")
def served(triton, tmp_path_factory):
    with triton.client() as client:
        yield Served(triton.repository, client, tmp_path_factory.mktemp("run") / "run", "lab.heal")


@pytest.fixture
def store(tmp_path):
    return open_store(str(tmp_path))


def processes(server, name):
    """Return the living processes of a model in Triton."""
    living = []
    for child in psutil.Process(server.process.pid).children(recursive=True):
        try:
            words = child.cmdline()
        except psutil.Error:  # it ended, and its parent has not noticed
            continue
        if words and words[0].endswith("stub") and words[-2].rsplit("_", 2)[0] == name:
            living.append(child)
    return living


@contextmanager
def watched(store, *servers, repository):
    """Run the trigger as Airflow does, in an event loop of its own; yield its events."""
    addresses = {
        f"triton_{kind}": ",".join(server.context.address(f"triton_{kind}") for server in servers)
        for kind in ("http", "grpc")
    }
    trigger = InterruptionTrigger(str(repository.root), "", 0.2, root=str(store.url), **addresses)
    events, loop = [], asyncio.new_event_loop()

    async def run():
        events.extend([event.payload async for event in trigger.run()])

    task = loop.create_task(run())

    def until_cancelled():
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(task)

    thread = threading.Thread(target=until_cancelled)
    thread.start()
    try:
        yield events
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        loop.close()


class Client:
    """Asks the table endpoint without a pause.

    Attributes:
        failures: times of requests that failed since the last call to ``forget``.
        since: requests that succeeded since the latest failure.
        wrong: answers of other values.
    """

    def __init__(self, served: Served) -> None:
        self._served, self._expected = served, served.expected(ROWS)
        self._ended, self._thread = threading.Event(), threading.Thread(target=self._ask)
        self.failures: list[float] = []
        self.since = 0
        self.wrong: list[object] = []

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()

    def _ask(self):
        while not self._ended.wait(0.05):
            try:
                answer = self._served.ask(ROWS)
            except AssertionError:
                self.failures.append(time.monotonic())
                self.since = 0
                continue
            self.since += 1
            if not np.array_equal(answer["probabilities"].astype(np.float32), self._expected):
                self.wrong.append(answer)


def latest(store, model):
    """Return the latest failure of a model's processes, if there is one."""
    return next(iter(read_process_failures(store, model).recent()), None)


@pytest.mark.parametrize("suffix", ["", ".table"], ids=["forest", "table endpoint"])
def test_a_killed_process_answers_again(triton, served, store, suffix):
    process, address = served.name + suffix, served.client.addresses["http"]
    with watched(store, triton, repository=triton.repository) as events, Client(served) as client:
        wait_until(lambda: client.since > SUCCESSES, 30)
        (before,) = processes(triton, process)
        client.failures.clear()
        before.kill()
        killed = time.monotonic()
        wait_until(lambda: latest(store, served.name), HEALED_SECONDS)
        during = latest(store, served.name)
        wait_until(lambda: client.failures and client.since > SUCCESSES, HEALED_SECONDS)
        assert client.failures[-1] < killed + HEALED_SECONDS
        wait_until(lambda: latest(store, served.name).reloaded, 5)
        assert [other != before for other in processes(triton, process)] == [True]
    assert during.text == (
        f"the process of {process} on {address} ended (noticed {during.noticed[:19].replace('T', ' ')} UTC) "
        "and is being reloaded; until then a part of the requests fails"
    )
    assert " UTC) and was reloaded 2" in latest(store, served.name).text
    assert read_process_failures(store, served.name).reloads == 1
    assert (client.wrong, events) == ([], [])
    assert read_intent(triton.repository.store, served.name) is None
    assert differences(Deployment(triton.repository, served.client, served.name), served.version) == ""


@pytest.mark.nightly("two more servers; a unit test proves that the other one is left alone")
def test_one_of_two_servers_reloads_what_ended_while_the_other_answers(store, tmp_path_factory):
    """Two forests and two table endpoints answer in turn: one of each ends, and the challenger."""
    folder, name = tmp_path_factory.mktemp("two"), "lab.twice"
    (folder / "models").mkdir()
    repository = Repository(str(folder / "models"))
    with ExitStack() as stack:
        servers = []
        for number in ("first", "second"):
            (folder / number).mkdir()
            servers.append(new_triton(folder / number, repository=str(repository.root)))
            stack.callback(servers[-1].stop)
            servers[-1].start()
        clients = [stack.enter_context(server.client()) for server in servers]
        for seed in range(2):
            trained_run(folder / f"run{seed}", seed=seed)
        deployment = Deployment(repository, clients, name)
        version = deployment.stage(folder / "run0/model").version
        two = ScalingChoice(Scaling(2), "chosen by the test")
        write_scaling_choice(repository.store, name, version, two, repository.versions(name))
        deployment.promote(version)
        served = Served(repository, clients, folder / "run0", name)
        deployment.start_canary(folder / "run1/model", share=0.1, shadow=True)
        ended = [name, f"{name}.challenger", table_name(name)]
        # Those of the table endpoint before the canary end after their unload.
        wait_until(lambda: {len(processes(server, table_name(name))) for server in servers} == {2}, 30)
        before = [{process: processes(server, process) for process in ended} for server in servers]
        assert [len(before[0][process]) for process in ended] == [2, 1, 2]
        served.client = clients[1]
        client = stack.enter_context(Client(served))
        events = stack.enter_context(watched(store, *servers, repository=repository))
        wait_until(lambda: client.since > SUCCESSES, 30)
        for process in ended:
            before[0][process][0].kill()
        wait_until(lambda: read_process_failures(store, name).reloads == len(ended), 2 * HEALED_SECONDS)
        assert {process: processes(servers[1], process) for process in ended} == before[1]
        for process in ended:
            assert before[0][process][0] not in processes(servers[0], process)
        (first, _) = clients
        golden = GoldenRows.read(repository, name, version)
        golden.check(first, name)
        assert (client.failures, client.wrong, events) == ([], [], [])
