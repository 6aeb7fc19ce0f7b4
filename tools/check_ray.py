"""Compare on a real Ray cluster, kill a process and a node, and expect the weights of ``--executor local``.

    python -m tools.check_ray

Takes some minutes. Needs Linux and the extra ``ray``. ``ray start`` listens on all interfaces, so everything runs
in a network namespace that has nothing but a loopback, and in a process namespace that ends with this command.
"""

import contextlib
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from synthattn.cli import reproduce
from synthattn.compare.cluster import RayCluster
from synthattn.compare.compare import compare
from synthattn.compare.comparison import Comparison
from synthattn.compare.executors import Executor
from synthattn.compare.records import load as load_record
from synthattn.training import checkpoints, record
from synthattn.training.progress import Display
from synthattn.training.settings import from_dict

ROOT, INSIDE, ADDRESS = Path(__file__).parents[1], "--inside", "127.0.0.1:6391"
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "TOKENIZERS_PARALLELISM": "false"}
Nodes = list["subprocess.Popen[bytes]"]


def main() -> None:
    if sys.argv[1:] != [INSIDE]:
        flags = ["--net", "--pid", "--mount-proc", "--fork", "--kill-child"]
        flags += [] if os.geteuid() == 0 else ["--map-root-user"]
        again = [sys.executable, "-m", "tools.check_ray", INSIDE]
        sys.exit(subprocess.run(["unshare", *flags, *again], cwd=ROOT, env=os.environ | QUIET).returncode)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    links = subprocess.run(["ip", "-o", "link", "show", "up"], capture_output=True, text=True, check=True).stdout
    assert len(links.splitlines()) == 1, f"a network can be reached: {links}"
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "hidden").mkdir()
        os.environ["SYNTHATTN_CACHE"] = str(folder / "cache")
        write_data(folder / "data")
        with cluster(folder) as nodes:
            check(folder, nodes)


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[Nodes]:
    """Start a node that takes no tasks, and two with a processor each; the second sees another folder ``hidden``."""
    start = [str(Path(sys.executable).parent / "ray"), "start", "--node-ip-address=127.0.0.1", "--num-gpus=0"]
    start += ["--disable-usage-stats", "--block", "--object-store-memory=80000000"]
    head = ["--head", "--port=6391", "--num-cpus=0", "--include-dashboard=false", f"--temp-dir={folder}/r"]
    hide = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs none "{folder}/hidden" && exec "$@"', "sh"]
    worker = [*start, f"--address={ADDRESS}", "--num-cpus=1"]
    nodes: Nodes = []
    with (folder / "ray.log").open("wb") as log:
        try:
            for command in ([*start, *head], worker, [*hide, *worker]):
                nodes.append(subprocess.Popen(command, stdout=log, stderr=log))
                wait_until(lambda: machines() == len(nodes) - 1, 120, folder / "ray.log")
            yield nodes
        finally:
            for node in nodes:
                node.kill()


def machines() -> int:
    """Return the number of machines that take tasks, and -1 where there is no cluster."""
    code = f"import ray; ray.init({ADDRESS!r}, log_to_driver=False)\n"
    code += "print(sum(node['Alive'] and node['Resources'].get('CPU', 0) for node in ray.nodes()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return int(float(done.stdout.split()[-1])) if done.returncode == 0 else -1


def wait_until(condition: Callable[[], bool], seconds: float, log: Path) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, log.read_text()
        time.sleep(1)


def write_data(folder: Path) -> None:
    folder.mkdir()
    rng = random.Random(0)
    for split, count in (("train", 60), ("valid", 5), ("test", 7)):
        texts = (" ".join(rng.choices(["red", "old", "dog", "cat", "tree", "sees"], k=7)) for _ in range(count))
        rows = "".join(f"{text}\t{'animal' if 'dog' in text else 'thing'}\n" for text in texts)
        (folder / f"{split}.tsv").write_text("text\tlabel\n" + rows)


def comparison(folder: Path) -> Comparison:
    often = {"log_every": 1, "evaluate_every": 4, "save_every": 4, "evaluate_tokens": 50}
    settings = {
        "data": {"source": str(folder / "data"), "task": "classification", "tokenizer": "words", "vocab_size": 130},
        "model": {"preset": "tiny"},
        "training": {"steps": 160, "batch_tokens": 128, "warmup": 1} | often,
    }
    return Comparison(from_dict(settings), ("vanilla", "random"), threads=1)


def check(folder: Path, nodes: Nodes) -> None:
    expected = made(folder / "local", None)
    same(made(folder / "ray", RayCluster(ADDRESS)), expected)
    table = folder / "table"
    done = reproduce.run("lm1b", "tiny", None, "random", 1, table, folder / "work", False, False, False, True,
                         executor="ray", address=ADDRESS)  # fmt: skip
    kept = [load_record(path) for path in table.rglob("*.json.xz")]
    assert done == 0
    assert len(kept) > 1
    assert all(one.record.status == "done" and one.measured for one in kept)
    print(f"reproduce: {len(kept)} runs", flush=True)
    try:
        compare(comparison(folder), folder / "hidden" / "new", executor=RayCluster(ADDRESS))
    except ValueError as error:
        assert "does not share" in str(error), error
        assert not (folder / "hidden" / "new").exists(), "something was left there"
        print(f"refused: {error}", flush=True)
    else:
        raise AssertionError("a folder that a machine does not have was accepted")
    place = folder / "interrupted"
    try:
        made(place, RayCluster(ADDRESS), lambda: os.kill(os.getpid(), signal.SIGINT))
    except KeyboardInterrupt:
        statuses = [one.status for one in records(place)]
        assert statuses == ["stopped", "stopped"], statuses
    else:
        raise AssertionError("the interrupt was lost")
    same(made(place, RayCluster(ADDRESS), resume=True), expected, starts=2)
    same(made(folder / "killed", RayCluster(ADDRESS), kill_task), expected, starts=2)
    same(made(folder / "lost", RayCluster(ADDRESS), lambda: kill_tree(nodes[1].pid)), expected, starts=2)
    print("all weights and scores are those of --executor local")


def made(
    place: Path, executor: Executor | None, harm: Callable[[], object] | None = None, resume: bool = False
) -> Path:
    """Make the comparison, and do some harm while it is made."""
    started, display = time.monotonic(), Display() if harm is None else Harm(place, harm)
    compare(comparison(place.parent), place, lambda label: display, resume=resume, jobs=2 if executor else 1,
            executor=executor)  # fmt: skip
    assert not isinstance(display, Harm) or display.done, "the runs ended too soon"
    print(f"{place.name}: {time.monotonic() - started:.0f} s", flush=True)
    return place


class Harm(Display):
    """Does harm once every run has a checkpoint, and one of them two: the first is surely in its record."""

    def __init__(self, place: Path, harm: Callable[[], object]) -> None:
        self.place, self.harm, self.done = place, harm, False

    def step(self, step: int, steps: int, facts: dict[str, str]) -> None:
        found = [len(checkpoints.checkpoints(run)) for run in (self.place / "runs").iterdir() if run.is_dir()]
        if not self.done and len(found) == 2 and min(found) > 0 and max(found) > 1:
            self.done = True
            self.harm()


def kill_task() -> None:
    """Kill one of the processes in which tasks run."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and (entry / "cmdline").read_bytes().startswith(b"ray::_at_home"):
                os.kill(int(entry.name), signal.SIGKILL)
                return
    raise AssertionError("no process of a task was found")


def kill_tree(process: int) -> None:
    """Kill a node: a process and all below it."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    for child in map(int, children):
        kill_tree(child)
    with contextlib.suppress(OSError):
        os.kill(process, signal.SIGKILL)


def records(place: Path) -> list[record.RunRecord]:
    return [record.load(run) for run in sorted((place / "runs").iterdir()) if (run / record.FILE).is_file()]


def weights(place: Path) -> dict[str, str]:
    files = sorted((place / "runs").glob("*/model/model.safetensors"))
    return {file.parts[-3]: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def same(found: Path, expected: Path, starts: int = 1) -> None:
    """Compare weights, scores and the number of starts, and look for files that were left."""
    assert len(weights(expected)) == 2
    assert weights(found) == weights(expected), (weights(found), weights(expected))
    scores = [[load_record(file).record.scores for file in sorted((place / "runs").glob("*.json"))]
              for place in (found, expected)]  # fmt: skip
    assert scores[0] == scores[1], scores
    measured = [load_record(file) for file in (found / "runs").glob("*.json")]
    assert all(one.measured and "training_speed" in one.speeds for one in measured if one.row != "vanilla")
    assert max(one.times["starts"] for one in records(found)) == starts, [one.times for one in records(found)]
    left = [path for pattern in ("*.messages", ".shared-*", "*.lock") for path in found.rglob(pattern)]
    assert not left, left


if __name__ == "__main__":
    main()
