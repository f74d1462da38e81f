"""A small course in a temporary folder, with test binaries that are scripts: what the tests of check, hint, ... work on."""

import contextlib
import io
import json
import os
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

os.environ["TERM"] = "dumb"  # plain lines, also for a person who runs these tests on a terminal
sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from lab import build, main, paths  # noqa: E402

MANIFEST = '''
part = "part1"
title = "Fused softmax-matmul"

[[task]]
id = "part1.puzzle"
label = "warm-up"
title = "One number a head"
file = "puzzle.cu"
points = 0
minutes = 45
needs_gpu = true
tags = ["CUDA"]
hints = ["Look at one query.", "Now look at all of them."]

[[task]]
id = "part1.fused_cpu"
label = "1.A"
title = "Fused softmax-matmul in C++"
file = "fused_cpu.cpp"
points = 1
minutes = 60
needs_gpu = false
tags = ["softmax", "blocks"]
hints = ["What does a row need to remember?", "m, l and d3 numbers.", "    l = l * alpha + sum(p)"]

[[task]]
id = "part1.fused_cuda"
label = "1.A"
title = "Fused softmax-matmul in CUDA"
file = "fused_cuda.cu"
points = 3
minutes = 180
needs_gpu = false
tags = ["CUDA"]
hints = ["One.", "Two."]

[[task]]
id = "part1.measure"
label = "1.B"
title = "How to measure"
file = "measure.cpp"
points = 4
minutes = 60
needs_gpu = false
tags = ["timing"]
hints = ["One.", "Two."]
'''

SOLUTION = '''// {name}
#include "contract.hpp"

void {name}() {{
  // BEGIN SOLUTION the whole of it, about 1 line
  // STUB throw NotYetImplemented("part1.{name}");
  work();
  // END SOLUTION
}}
'''

SKELETON = '''// {name}
#include "contract.hpp"

void {name}() {{
  // TODO the whole of it, about 1 line
  throw NotYetImplemented("part1.{name}");
}}
'''

# A test binary as the harness makes them. A case's "do" is a status that it reports, or what happens to the process.
BINARY = '''#!{python} -IS
import json, os, signal, subprocess, sys, time
cases = {cases!r}
arguments = sys.argv[1:]
if "--list-cases" in arguments:
    print("\\n".join(case["name"] for case in cases))
    sys.exit(0)
open({calls!r}, "a").write(json.dumps(arguments) + "\\n")
wanted = [arguments[n + 1] for n, word in enumerate(arguments) if word == "--case"]
report = open(arguments[arguments.index("--report") + 1], "a")
def say(**event):
    print(json.dumps(event), file=report, flush=True)
{prologue}
say(event="begin", task={task!r}, implementation={implementation!r}, backend={backend!r}, seed=1,
    cases=[dict(name=case["name"], weight=case.get("weight", 1), challenge=case.get("challenge", False)) for case in cases])
for case in cases:
    if wanted and case["name"] not in wanted:
        continue
    say(event="start", case=case["name"])
    if "print" in case:
        print(case["print"], flush=True)
    do = case["do"]
    if do == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif do == "abort":
        os.abort()
    elif do.startswith("exit"):
        os._exit(int(do[4:]))
    elif do == "hang":
        child = subprocess.Popen(["sleep", "60"])
        open({calls!r} + ".child", "w").write(str(child.pid))
        time.sleep(60)
    elif do == "flood":
        for _ in range(300):
            print("x" * 1000)
        do = "crash"
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGSEGV)
    elif do == "pass then exit":
        say(event="end", case=case["name"], status="passed", message="", seconds=0.01)
        os._exit(0)
    else:
        say(event="end", case=case["name"], status=do, message=case.get("message", ""), seconds=0.01)
say(event="complete")
{epilogue}
'''


class Course(unittest.TestCase):
    """A test with a course of one part: `self.root`, scripts for binaries, `self.lab("check", "part1")`."""

    maxDiff = None
    cuda = "none"  # what the configure step found
    emulated = checked = False
    compiler = "GNU 12.2.0"

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="lab-test-")
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve()
        self.part = self.root / "part1_softmax_matmul"
        self.broken: dict[str, str] = {}  # target -> first error of its build
        self.built: list[str] = []
        self.write("part1_softmax_matmul/tasks.toml", MANIFEST)
        for name, suffix in (("puzzle", "cu"), ("fused_cpu", "cpp"), ("fused_cuda", "cu"), ("measure", "cpp")):
            self.write(f"part1_softmax_matmul/solution/{name}.{suffix}", SOLUTION.format(name=name))
            self.write(f"part1_softmax_matmul/skeleton/{name}.{suffix}", SKELETON.format(name=name))
        for module, name, value in ((paths, "ROOT", self.root), (paths, "STATE", self.root / ".lab"),
                                    (build, "configured", self._configured), (build, "configure", self._configured),
                                    (build, "build", self._build), (build, "binary", self.binary)):
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def write(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
        return file

    def binary(self, target: str, preset: str = "default") -> Path:
        return self.root / "build" / preset / "bin" / target

    def fake(self, name: str, cases: list[dict], implementation: str = "skeleton", prologue: str = "",
             epilogue: str = "", task: str | None = None, backend: str | None = None) -> None:
        """Puts the test binary of a task in place."""
        backend = backend or ("gpu" if name in ("puzzle", "fused_cuda") else "cpu")
        target = self.target(name, implementation, backend)
        script = BINARY.format(python=sys.executable, cases=cases, calls=str(self.root / f"{target}.calls"),
                               task=task or f"part1.{name}", implementation=implementation, backend=backend,
                               prologue=prologue, epilogue=epilogue)
        self.write(f"build/default/bin/{target}", script).chmod(0o755)

    @staticmethod
    def target(name: str, implementation: str = "skeleton", backend: str = "") -> str:
        suffix = f"_{backend}" if backend in ("emulated", "checked") else ""
        return f"part1_{name}_{implementation}{suffix}_tests"

    def calls(self, name: str, implementation: str = "skeleton", backend: str = "") -> list[list[str]]:
        """The cases that each start of the binary was asked to run."""
        lines = (self.root / f"{self.target(name, implementation, backend)}.calls").read_text().splitlines()
        arguments = [json.loads(line) for line in lines]
        return [[words[n + 1] for n, word in enumerate(words) if word == "--case"] for words in arguments]

    def lab(self, *argv: str) -> tuple[int, str]:
        """Runs a command line; its exit code, and what a person would see (stderr after stdout)."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main.main(list(argv))
        lines = [line.rstrip() for line in (out.getvalue() + err.getvalue()).splitlines()]
        return code, "\n".join(lines).strip("\n") + "\n"

    @staticmethod
    def silence() -> contextlib.AbstractContextManager:
        return contextlib.redirect_stdout(io.StringIO())

    def _configured(self, preset: str = "default") -> build.Config:
        gpu = "NVIDIA H200" if self.cuda == "gpu" else ""
        return build.Config("0.1.0", self.compiler, "2.13.10", self.cuda, "", gpu, self.emulated, self.checked, "")

    def _build(self, target: str | list[str], preset: str = "default", keep_going: bool = False) -> build.BuildResult:
        targets = [target] if isinstance(target, str) else target
        self.built.append(" ".join(targets))
        error = next((self.broken[one] for one in targets if one in self.broken), "")
        return build.BuildResult(not error, error, error, 0.0)
