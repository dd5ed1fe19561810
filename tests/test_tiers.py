"""The test run itself: a test that hangs fails by name, and what it left behind ends with the run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tests.tiers import are_children_traced, is_in_memory, is_traced

TESTS = Path(__file__).parent
ROOT = TESTS.parent

HANGS = """
import os, subprocess, sys, time

def test_before():
    print(os.environ.get("TOOLEXEC_TEST_RUN_IN_MEMORY", ""), end="", file=open("memory.txt", "w"))

def test_hangs():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print("child", child.pid, file=open("child.txt", "w"))
    time.sleep(600)

def test_after():
    pass
"""

THREADS = """
import queue, sys, threading

import lib
import pytest

JOBS = queue.SimpleQueue()

def work():
    for job in iter(JOBS.get, None):
        job()

def test_begins_a_thread():
    threading.Thread(target=work, daemon=True).start()

@pytest.mark.untraced
def test_needs_no_coverage():
    assert sys.gettrace() is None
    lib.by_the_untraced()

def test_works_in_the_thread():
    done = threading.Event()
    JOBS.put(lambda: lib.by_the_thread(done))
    assert done.wait(30)
    lib.by_the_last()
    JOBS.put(None)
"""
LIB = """
def by_the_untraced():
    return 3

def by_the_thread(done):
    done.set()

def by_the_last():
    return 9
"""


@pytest.mark.full
def test_a_hung_test_fails_by_name(tmp_path: Path) -> None:
    """The run reports it, goes on with the others, ends the process that it had started, and removes its files."""
    (tmp_path / "conftest.py").write_text((ROOT / "conftest.py").read_text())
    (tmp_path / "test_it.py").write_text(HANGS)
    for number in range(8):  # enough for the worker to have ended some, and for the run to have more for its successor
        (tmp_path / f"test_{number}.py").write_text("def test_one(): pass\ndef test_two(): pass\n" * (1 + number % 2))
    options = [
        "-n",
        "2",
        "--dist",
        "loadfile",
        "-p",
        "no:cacheprovider",
        "-o",
        "faulthandler_timeout=5",
        "-o",
        "faulthandler_exit_on_timeout=true",
    ]
    environment = {name: value for name, value in os.environ.items() if name != "TOOLEXEC_TEST_RUN"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-q", str(tmp_path)],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED test_it.py::test_hangs" in done.stdout.split("short test summary")[0], "as soon as it happens"
    assert "1 failed, 18 passed" in done.stdout
    assert "in test_hangs" in done.stderr, "the stacks of the worker that hung"
    child = int((tmp_path / "child.txt").read_text().split()[1])
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE
    memory = (tmp_path / "memory.txt").read_text()
    assert memory != os.environ.get("TOOLEXEC_TEST_RUN_IN_MEMORY", "none"), "the run that this test is of has its own"
    assert not memory or not Path(memory).exists()


@pytest.mark.full
def test_threads_stay_traced(tmp_path: Path) -> None:
    """A test that needs no coverage takes it neither from the threads that there are nor from the tests after it."""
    (tmp_path / "conftest.py").write_text((ROOT / "conftest.py").read_text())
    (tmp_path / "test_it.py").write_text(THREADS)
    (tmp_path / "lib.py").write_text(LIB)
    environment = {name: value for name, value in os.environ.items() if name != "TOOLEXEC_TEST_RUN"}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "-q",
            "--cov=lib",
            "--cov-report=json:lib.json",
            ".",
        ],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}", "COVERAGE_CORE": "ctrace"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    file = json.loads((tmp_path / "lib.json").read_text())["files"]["lib.py"]
    assert file["missing_lines"] == [3], "what the untraced test called, and nothing else"


@pytest.mark.full
def test_the_tier_above_reads_only_files_that_name_it(tmp_path: Path) -> None:
    """A file that does not name the mark is not imported there; one whose tests have it from elsewhere is refused."""
    (tmp_path / "conftest.py").write_text((ROOT / "conftest.py").read_text())
    (tmp_path / "test_marked.py").write_text("import pytest\n@pytest.mark.full\ndef test_it(): pass\n")
    (tmp_path / "test_plain.py").write_text("print('was read')\ndef test_it(): pass\n")
    done = _ran(tmp_path, "above")
    assert (done.returncode, "1 passed" in done.stdout, "was read" in done.stdout) == (0, True, False), done.stdout
    done = _ran(tmp_path, "fast")
    assert (done.returncode, "1 passed, 1 deselected" in done.stdout) == (0, True), done.stdout
    (tmp_path / "test_plain.py").write_text("from test_marked import test_it\n")
    done = _ran(tmp_path, "fast")
    assert (done.returncode, "name mark.full in the file of test_plain.py::test_it" in done.stderr) == (4, True)


def _ran(directory: Path, tier: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "TOOLEXEC_TEST_RUN"}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-s", "--tier", tier],
        cwd=directory,
        env={**environment, "PYTHONPATH": f"{ROOT}{os.pathsep}{directory}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.full
def test_what_needs_no_coverage_is_not_traced() -> None:
    """No tracer slows down a test like this one, in a worker either."""
    assert sys.gettrace() is None or is_traced(Path(__file__), {"full"})


def test_properties_are_not_traced() -> None:
    """Examples are, and above the fast tier those of some directories only."""
    model, runtime = TESTS / "model" / "test_json_value.py", TESTS / "runtime" / "test_runs.py"
    assert is_traced(model, set())
    assert not is_traced(model, {"full"})
    assert is_traced(runtime, {"full"})
    assert not is_traced(model, {"hypothesis"})
    assert is_traced(runtime, {"hypothesis"})


def test_small_files_are_in_memory_and_large_ones_are_not() -> None:
    """Journals and logs are kept there in every tier, and nothing that may be an image."""
    assert is_in_memory(TESTS / "durable" / "test_faults.py")
    assert not is_in_memory(TESTS / "runtime" / "images" / "test_build.py")
    assert not is_in_memory(ROOT / "packages" / "kubernetes" / "tests" / "test_pods.py")


def test_children_are_traced_only_where_that_is_needed() -> None:
    """The process that a test like this one starts begins no coverage."""
    assert not are_children_traced(Path(__file__))
    assert are_children_traced(TESTS / "process" / "test_tree.py")
    assert "COVERAGE_PROCESS_CONFIG" not in os.environ
