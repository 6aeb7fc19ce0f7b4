"""The executor for clusters, on a Ray that makes tasks in this process. tools/check_ray.py has a real one."""

import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from test_compare import data, tiny  # noqa: F401 (a fixture)
from test_workers import FUSED_KEYS, scores, weights

from synthattn.compare import cluster
from synthattn.compare.cluster import RayCluster
from synthattn.compare.compare import compare
from synthattn.compare.comparison import Comparison
from synthattn.compare.executors import Executor, find_executor
from synthattn.compare.forecast import Forecast
from synthattn.compare.plan import plan
from synthattn.compare.records import load as load_record
from synthattn.engine import thresholds
from synthattn.paper.recipes import recipe
from synthattn.paper.runs import Folders, plan_source
from synthattn.training.progress import Display
from synthattn.training.run import Stopped

pytestmark = pytest.mark.unchecked


class RayError(Exception):
    """Raised for a task that has ended early, or with the error that it raised."""

    def __init__(self, text: str, cause: Exception | None = None) -> None:
        super().__init__(text)
        self.cause = cause


class FakeRay(types.ModuleType):
    """Makes every task at once, in this process.

    ``before`` is called with the name of each task's function and its arguments; what it raises is how the task ends.
    """

    def __init__(self) -> None:
        super().__init__("ray")
        self.exceptions = types.SimpleNamespace(RayError=RayError)
        self.before: Callable[[str, tuple[Any, ...]], None] = lambda name, arguments: None
        self.addresses: list[str] = []
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.cancelled: list[int] = []
        self.results: list[Any] = []
        self.offered: list[dict[str, float]] = [{"CPU": 2.0}, {"CPU": 1.0}]

    def is_initialized(self) -> bool:
        return bool(self.addresses)

    def init(self, address: str, **options: Any) -> None:
        self.addresses.append(address)

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {"NodeID": f"id{n}", "NodeManagerHostname": f"machine{n}", "Alive": True, "Resources": offered}
            for n, offered in enumerate(self.offered)
        ]

    def remote(self, **options: Any) -> Callable[[Callable[..., Any]], Any]:
        def prepared(function: Callable[..., Any]) -> Any:
            def start(*arguments: Any) -> int:
                name = arguments[2].__name__
                self.asked.append((name, options))
                try:
                    self.before(name, arguments[3])
                    self.results.append(function(*arguments))
                except RayError as error:
                    self.results.append(error)
                except (ValueError, ImportError) as error:
                    self.results.append(RayError("a traceback", error))
                return len(self.results) - 1

            return types.SimpleNamespace(remote=start)

        return prepared

    def wait(self, references: list[int], **options: Any) -> tuple[list[int], list[int]]:
        return references[:1], references[1:]

    def get(self, reference: int) -> Any:
        found = self.results[reference]
        if isinstance(found, RayError):
            raise found
        return found

    def cancel(self, reference: int, force: bool = False) -> None:
        self.cancelled.append(reference)


@pytest.fixture(autouse=True)
def _thresholds_of_users(monkeypatch):
    """Undo what other tests need: what is made once for all tests of this file was made without it."""
    monkeypatch.setattr(thresholds, "FUSED_KEYS", FUSED_KEYS)


@pytest.fixture
def ray(monkeypatch):
    made, there = FakeRay(), types.ModuleType("ray.util.scheduling_strategies")
    there.NodeAffinitySchedulingStrategy = lambda node, soft: node  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "ray", made)
    monkeypatch.setitem(sys.modules, "ray.util.scheduling_strategies", there)
    monkeypatch.setattr(cluster, "INTERVAL", 0.001)
    monkeypatch.setattr(cluster, "SOON", 0.0)
    monkeypatch.setattr(cluster, "PATIENCE", 0.0)
    return made


@pytest.fixture
def quick(monkeypatch):
    """Leave out what one test is enough for: timing and measuring."""
    monkeypatch.setattr(cluster, "_forecast", lambda *arguments: Forecast({}, 1, 4, 1, None, 1, 0))
    monkeypatch.setattr(cluster, "_measure", lambda *arguments: None)


@pytest.fixture(scope="module")
def alone(data, tmp_path_factory):  # noqa: F811
    folder = tmp_path_factory.mktemp("alone") / "new"
    compare(comparison(data), folder, jobs=1)
    return folder


def comparison(folder: Path, **training: Any) -> Comparison:
    return Comparison(tiny(folder / "classes", "classification", **training), ("vanilla", "random"), threads=1)


class _Heard(Display):
    """Keeps the labels of displays."""

    def __init__(self) -> None:
        self.labels: list[str] = []
        self.steps: list[int] = []
        self.measured: list[tuple[int, int]] = []

    def named(self, label: str) -> Display:
        self.labels.append(label)
        return self

    def step(self, step: int, steps: int, facts: dict[str, str]) -> None:
        self.steps.append(step)

    def scored(self, done: int, total: int) -> None:
        self.measured.append((done, total))


def test_runs_of_a_cluster_are_those_of_this_machine(data, ray, alone, tmp_path):  # noqa: F811
    heard = _Heard()
    compare(comparison(data), tmp_path / "new", heard.named, executor=RayCluster("auto"))
    assert weights(tmp_path / "new") == weights(alone)
    assert scores(tmp_path / "new") == scores(alone)
    assert ray.addresses == ["auto"]
    names = [name for name, _ in ray.asked]
    assert names == ["_answer"] * 2 + ["_forecast"] + ["_make"] * 2 + ["_measure"]
    assert [options["num_cpus"] for _, options in ray.asked] == [0, 0, 1, 1, 1, 2]
    assert [options.get("scheduling_strategy") for _, options in ray.asked[:2]] == ["id0", "id1"]
    assert all(options["max_retries"] == 0 and options["num_gpus"] == 0 for _, options in ray.asked)
    assert {"vanilla", "random"} <= set(heard.labels)
    assert heard.steps.count(4) == 2
    assert heard.measured[-1] == (2, 2)
    assert all(load_record(file).measured for file in (tmp_path / "new" / "runs").glob("*.json"))
    assert not [path for path in (tmp_path / "new").rglob("*") if "shared" in path.name or "messages" in path.name]


def test_a_task_that_dies_is_started_again(data, ray, alone, quick, tmp_path):  # noqa: F811
    deaths = []

    def die_twice(name: str, arguments: tuple[Any, ...]) -> None:
        if name == "_make" and len(deaths) < 2:
            deaths.append(name)
            raise RayError("The worker died unexpectedly.\nCheck the log.")

    ray.before = die_twice
    compare(comparison(data), tmp_path / "new", executor=RayCluster("auto"))
    assert weights(tmp_path / "new") == weights(alone)


def test_a_run_whose_task_always_dies_is_given_up(data, ray, quick, tmp_path):  # noqa: F811
    def die(name: str, arguments: tuple[Any, ...]) -> None:
        if name == "_make" and "random" in arguments[2]:
            raise RayError("The worker died unexpectedly.\nCheck the log.")

    ray.before = die
    compare(comparison(data), tmp_path / "new", executor=RayCluster("auto"))
    found = {file.stem: load_record(file).record for file in (tmp_path / "new" / "runs").glob("*.json")}
    assert {name: one.status for name, one in found.items()} == {"vanilla-0": "done", "random-0": "failed"}
    assert found["random-0"].reason == "given up after 4 tries: The worker died unexpectedly. Check the log."
    assert [name for name, _ in ray.asked].count("_make") == 5


def test_divergence_is_a_result(data, ray, quick, tmp_path):  # noqa: F811
    compare(comparison(data, learning_rate=1e30), tmp_path / "new", executor=RayCluster("auto"))
    found = [load_record(file).record for file in (tmp_path / "new" / "runs").glob("*.json")]
    assert [one.status for one in found] == ["failed", "failed"]
    assert "lower training.learning_rate" in found[0].reason
    assert [name for name, _ in ray.asked].count("_make") == 2


def test_an_interrupt_lets_all_runs_save(data, ray, quick, tmp_path, monkeypatch):  # noqa: F811
    wait = ray.wait
    monkeypatch.setattr(ray, "wait", lambda found, **options: ([], found) if len(found) > 1 else wait(found))

    def interrupt(label: str) -> Display:
        if label == "vanilla":
            raise KeyboardInterrupt
        return Display()

    executor = RayCluster("auto")
    executor._checked.add(tmp_path / "new" / "runs")
    with pytest.raises(KeyboardInterrupt):
        compare(comparison(data), tmp_path / "new", interrupt, executor=executor)
    assert ray.cancelled == [1, 2]  # the forecast was the first task
    assert not list((tmp_path / "new").rglob("*.messages"))


def test_a_task_that_is_interrupted_says_so(data, ray, tmp_path, monkeypatch):  # noqa: F811
    (tmp_path / "new").mkdir()
    comparison(data).save(tmp_path / "new")
    source = cluster.PlanSource("synthattn.compare.comparison:open_tasks", {"folder": str(tmp_path / "new")})
    name = "comparison///random-0"
    for ends in (Stopped(tmp_path, 3), KeyboardInterrupt()):
        monkeypatch.setattr(cluster, "outcome", lambda *task, ends=ends: (_ for _ in ()).throw(ends))
        assert cluster._make(source, 1, name, str(tmp_path / "messages")) == ("stopped",)
    wrong = cluster.PlanSource(source.function, {"folder": str(tmp_path / "nowhere")})
    outcome, reason = cluster._make(wrong, 1, name, str(tmp_path / "messages"))
    assert (outcome, reason) == (
        "failed",
        f"{tmp_path / 'nowhere'} holds no compare.yaml, so it is not the folder of a comparison",
    )


def test_messages_are_read_as_they_come(tmp_path):
    heard, file = _Heard(), tmp_path / "messages"
    started = cluster._Started((None, None), heard.named, file)  # pyright: ignore[reportArgumentType]
    started.show()
    first, second = (json.dumps(one) + "\n" for one in ({"display": ["a run"]}, {"step": [3, 4, {}]}))
    file.write_text(first + second[:5])
    started.show()
    assert (heard.labels, heard.steps) == (["a run"], [])
    file.write_text(first + second)
    started.close()
    assert heard.steps == [3]
    assert not file.exists()


def refused(data: Path, folder: Path, executor: RayCluster, **changes: Any) -> str:  # noqa: F811
    with pytest.raises(ValueError, match=r".") as found:
        compare(comparison(data), folder, executor=executor)
    assert not folder.exists()
    assert "\n" not in str(found.value)
    return str(found.value)


def test_a_folder_that_is_not_shared_is_refused(data, ray, tmp_path, monkeypatch):  # noqa: F811
    place = tmp_path / "new"
    monkeypatch.setattr(cluster, "_answer", lambda question, answer: (cluster.__version__, "machine1 does not see it"))
    said = refused(data, place, RayCluster("auto"))
    assert said == (
        f"machine0 of the cluster does not share {place / 'runs'} (machine1 does not see it); choose an --output that "
        "all machines see under the same name"
    )
    monkeypatch.setattr(cluster, "_answer", lambda question, answer: (cluster.__version__, ""))
    assert "machine0 of the cluster does not share" in refused(data, place, RayCluster("auto"))
    monkeypatch.setattr(cluster, "_answer", lambda question, answer: ("0.0.1", ""))
    assert "machine0 of the cluster has synthattn 0.0.1, this machine has" in refused(data, place, RayCluster("auto"))


def test_a_machine_that_does_not_see_a_file_says_so(ray, tmp_path):
    version, reason = cluster._answer(str(tmp_path / "nothing"), str(tmp_path / "answer"))
    assert reason.endswith("does not see what was written there")
    (tmp_path / "question").write_text("x")
    assert cluster._answer(str(tmp_path / "question"), str(tmp_path / "answer")) == (version, "")
    assert (tmp_path / "answer").read_text() == "x"
    assert "nowhere" in cluster._answer(str(tmp_path / "question"), str(tmp_path / "nowhere" / "answer"))[1]


def test_mistakes_are_one_line(data, ray, tmp_path, monkeypatch):  # noqa: F811
    place = tmp_path / "new"
    with pytest.raises(ValueError, match=r"^--executor ray needs --address: auto or HOST:PORT .* got ''$"):
        find_executor("ray")
    for address in ("local", "ray://host:10001", "host"):  # the first would start a cluster
        with pytest.raises(ValueError, match="--executor ray needs --address"):
            find_executor("ray", address)
    with pytest.raises(ValueError, match="there is no executor 'rai'; did you mean ray"):
        find_executor("rai")
    with pytest.raises(ValueError, match=r"^--address is for --executor ray$"):
        find_executor("local", "auto")
    with pytest.raises(ValueError, match=r"^--gpus is for --executor ray$"):
        find_executor("local", None, 1)
    with pytest.raises(ValueError, match=r"from 0 to 1, got 2$"):
        find_executor("ray", "auto", 2)
    assert type(find_executor()) is Executor
    ray.offered = [{"CPU": 0.0}]
    assert "none has a processor" in refused(data, place, RayCluster("auto"))
    ray.offered = [{"CPU": 4.0}]
    assert "no machine of the cluster has an accelerator for --gpus 0.5" in refused(
        data, place, RayCluster("auto", 0.5)
    )
    ray.offered = [{"CPU": 0.0, "GPU": 8.0}, {"CPU": 1.0}]
    with pytest.raises(ValueError, match=r"no machine of the cluster has 3 processors .* the largest has 1"):
        RayCluster("auto")._check([], 3)
    monkeypatch.setattr(
        ray, "before", lambda name, arguments: (_ for _ in ()).throw(ImportError("No module synthattn"))
    )
    assert refused(data, place, RayCluster("auto")) == (
        "a task of the cluster has failed: ImportError: No module synthattn"
    )
    ray.addresses.clear()
    monkeypatch.setattr(ray, "init", lambda **options: (_ for _ in ()).throw(ConnectionError("nobody\nthere")))
    assert refused(data, place, RayCluster("auto")) == "cannot join the Ray cluster at auto: nobody there"
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "pip install 'synthattn[ray]'" in refused(data, place, RayCluster("auto"))


def test_the_tables_of_the_paper_are_opened_elsewhere(tmp_path):
    study = recipe("glue", "tiny")
    folders = Folders(tmp_path / "results", tmp_path / "work")
    wanted = {"glue": [study.parts[0].rows[1].key]}
    source = plan_source([study], folders, wanted, 1)
    there = cluster.PlanSource(source.function, json.loads(json.dumps(source.arguments)))
    found = there.tasks(lambda label: Display())
    assert [run for _, run in found] == list(plan(study, wanted["glue"], 1))
    assert {made.places for made, _ in found} == {folders}


def test_room_of_a_cluster(ray):
    expected = Forecast({}, 1, 1, 1, None, 1000, 0.0)
    executor = RayCluster("auto")
    ray.offered = [{"CPU": 8.0, "memory": 2500.0}, {"CPU": 4.0, "memory": 9000.0}]
    assert [executor.usual_threads(runs) for runs in (1, 2, 4, 100)] == [4, 4, 2, 1]
    assert executor.usual_jobs(expected, 2) == 2 + 2
    assert executor.usual_jobs(None, 2) == 4 + 2
    ray.offered = [{"CPU": 16.0, "GPU": 4.0}, {"CPU": 4.0}]
    assert executor.usual_threads(100) == 4
    assert executor.usual_jobs(None, 2) == 4
    assert RayCluster("auto", 0.5).usual_jobs(None, 2) == 8
    assert RayCluster("auto", 0.0).usual_jobs(None, 2) == 10
    assert torch.get_num_threads() == 1  # tasks give back what they were given
