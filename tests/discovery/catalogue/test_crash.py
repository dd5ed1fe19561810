"""A process that is killed at any moment leaves a catalogue that is whole."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.discovery.catalogue.tools import stored
from tests.servers import server_environment

from toolexec.discovery.catalogue import SQLiteCatalogue

pytestmark = pytest.mark.full

WRITER = """
import random, sys
from toolexec import InMemoryIndex, Tool
from toolexec.model import MCPBinding
from toolexec.discovery.catalogue import SQLiteCatalogue

def tool(number, edition):
    words = f"edition {edition} of item{number} with some more words"
    return Tool(name=f"t{number}", namespace=f"n{number % 7}", description=words * 5, input_schema={"type": "object"})

catalogue = SQLiteCatalogue(sys.argv[1], delay=0.0)
index = catalogue.open()
dice = random.Random(int(sys.argv[2]))
catalogue.attach(index)
print("ready", flush=True)
for edition in range(1_000_000):
    number = dice.randrange(900)
    known = index.find(f"n{number % 7}:t{number}")
    if known is not None and dice.random() < 0.2:
        index.unregister(known.tool.id)
    else:
        index.replace(tool(number, edition), MCPBinding("there", f"t{number}"))
    if edition % 400 == 399:
        catalogue.save(index)
        print("saved", flush=True)
"""


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 20))])
def test_killed_while_it_writes(path: Path, seed: int) -> None:
    """Ten times in a row, at another moment each time: all that is there can be read, verified and searched."""
    dice = random.Random(seed)
    sizes: list[int] = []
    for attempt in range(10):
        command = [sys.executable, "-c", WRITER, str(path), str(seed * 100 + attempt)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=server_environment()) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"ready\n"
            if attempt % 2:
                assert writer.stdout.readline() == b"saved\n"
            time.sleep(dice.random() * 0.3)
            writer.send_signal(signal.SIGKILL)
            assert writer.wait(30) == -signal.SIGKILL
        with SQLiteCatalogue(path) as catalogue:
            sizes.append(catalogue.verify())
        index = stored(path)
        assert len(index) == sizes[-1]
        for entry in index.tools()[:50]:
            number = entry.tool.name[1:]
            assert entry.tool.description.count(f"item{number} ") == 5
            assert entry.tool.id in index.search(f"item{number}", 20).ids()
    assert max(sizes) > 100
