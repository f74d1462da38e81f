"""A small course in a temporary folder, with a judge that is a script; what the tests share.

Tests of programs and libraries look for them in the build that the environment variable FLASH_BUILD
names (ctest sets it), else in build/default, and are skipped where those are not built.

One file of tests: PYTHONPATH=tools:tests/tools python -m unittest tests/tools/test_check.py
"""

import contextlib
import io
import json
import os
import shlex
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

os.environ["TERM"] = "dumb"  # plain lines, also for a person who runs these tests on a terminal
os.environ.pop("CXX", None)  # a toy build has no compiler, and a real one keeps its own
sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from lab import (build, checking, libraries, main, manifest, outcomes, paths,  # noqa: E402
                 released, running, zoo)
from lab.backends import CPU  # noqa: E402
from lab.errors import LabError  # noqa: E402

BUILD = Path(os.environ.get("FLASH_BUILD") or paths.BUILD).absolute()


def _task(file: str, label: str, title: str, points: int, minutes: int, *hints: str) -> str:
    name = file.split(".")[0]
    return f'''
[[task]]
id = "part1.{name}"
label = "{label}"
title = "{title}"
file = "{file}"
points = {points}
requirements = {{ {'"all" = 100' if points else ""} }}
minutes = {minutes}
hints = {json.dumps(hints or ("One.", "Two."))}
'''


MANIFEST = 'part = "part1"\ntitle = "Fused softmax-matmul"\n' + "".join((
    _task("puzzle.cu", "warm-up", "One number a head", 0, 45),
    _task("fused_cpu.cpp", "1.A", "Fused softmax-matmul in C++", 1, 60,
          "What does a row need?", "m, l and d3 numbers.", "    l = l * alpha + sum(p)"),
    _task("fused_cuda.cu", "1.A", "Fused softmax-matmul in CUDA", 3, 180),
    _task("measure.cpp", "1.B", "How to measure", 4, 60)))

SKELETON = '''// {name}
void {name}() {{
  // TODO the whole of it, about 1 line
  throw NotYetImplemented("part1.{name}");
}}
'''
SOLUTION = SKELETON.replace("TODO", "BEGIN SOLUTION").replace("throw", "// STUB throw").replace(
    "}}", "  work();\n  // END SOLUTION\n}}")

# A judge whose libraries are the fakes of their tasks: scripts that say how their cases end. Those
# that need the checks are called so.
# A first line #!{python} would end at a space in the clone's path.
JUDGE = '''#!/bin/sh
"exec" "{python}" "-ISu" "$0" "$@"
import json, os, sys, time
arguments = sys.argv[1:]
def values(option):
    return [arguments[n + 1] for n, word in enumerate(arguments) if word == option]
if "--list-cases" in arguments:
    suffix = {{"emulated": "_emulated", "checked": "_checked"}}.get(values("--backend")[0], "")
    name = "lib" + values("--task")[0].replace(".", "_") + "_skeleton" + suffix + ".so"
    names = [case["name"] for case in json.load(open(os.path.join({libraries!r}, name)))["cases"]]
    print("\\n".join(name for name in names
                    if name.startswith("checks: ") or "--needs-checks" not in arguments))
    sys.exit(0)
fake = json.load(open(values("--library")[0]))
open(fake["calls"], "a").write(json.dumps(arguments) + "\\n")
wanted, report = values("--case"), open(values("--report")[0], "a")
def say(**event):
    print(json.dumps(event), file=report, flush=True)
exec(fake["prologue"])
cases = [case for case in fake["cases"]
         if case["name"].startswith("checks: ") or "--needs-checks" not in arguments]
for name in wanted:
    if name not in [case["name"] for case in cases]:
        sys.exit(f"--case is '{{name}}'; {{fake['task']}} has no such case (see --list-cases)")
say(event="begin", task=fake["task"], seed=1,
    cases=[dict(name=case["name"], requirement=case.get("requirement", "all")) for case in cases])
for case in cases:
    if wanted and case["name"] not in wanted:
        continue
    say(event="start", case=case["name"])
    exec(case.get("run", ""))
    say(event="end", case=case["name"], message=case.get("message", ""), seconds=0,
        status=case["do"], output=case.get("output", ""), backend=fake["backend"])
    for event, more in case.get("then", {{}}).items():
        if event != "explanation" or "--explain" in arguments:
            say(event=event, case=case["name"], **more)
say(event="complete")
'''


# A program that writes down how it was called.
PROGRAM = '''#!/bin/sh
"exec" "{python}" "-IS" "$0" "$@"
import json, os, sys
with open({calls!r}, "a") as calls:
    print(json.dumps([os.path.basename(sys.argv[0]), *sys.argv[1:]]), file=calls)
if {table!r}:
    with open(sys.argv[sys.argv.index("--output") + 1], "w") as table:
        table.write({table!r})
print(end={out!r})
sys.exit({code})
'''


def case(name: str, do: str = "passed", **more: object) -> dict:
    """A case of a fake library (see JUDGE), and the status that the judge reports."""
    return {"name": name, "do": do, **more}


class Test(unittest.TestCase):
    maxDiff = None

    def patch(self, target: object, **values: object) -> None:
        self.enterContext(mock.patch.multiple(target, **values))

    def environment(self, remove: tuple[str, ...] = (), **values: str) -> None:
        self.enterContext(mock.patch.dict(os.environ, values))
        for name in remove:
            os.environ.pop(name, None)

    def folder(self) -> Path:
        return Path(self.enterContext(tempfile.TemporaryDirectory(prefix="lab-test-"))).resolve()

    @staticmethod
    def printed(call, *arguments: object, **options: object) -> tuple[object, str]:
        """What the call returns, and what it prints (stderr after stdout)."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            value = call(*arguments, **options)
        return value, out.getvalue() + err.getvalue()

    def refused(self, call, *arguments: object, **options: object) -> str:
        """The text of the LabError that the call raises."""
        with self.assertRaises(LabError) as caught:
            self.printed(call, *arguments, **options)
        self.assertNotIn("\n", str(caught.exception))
        return str(caught.exception)


class Built(Test):
    """With the judges, runners and libraries of BUILD."""

    def setUp(self) -> None:
        self.patch(build, binary=lambda target: BUILD / "bin" / target)

    def run_member(self, member: zoo.Member, backend: str, cases: Sequence[str],
                   **settings: object) -> list[outcomes.CaseResult]:
        """Runs cases on a member of the zoo."""
        known = libraries.load(BUILD)
        judge = build.binary(running.judge_of(member.task))
        if not judge.is_file() or (member.task.path("solution"), backend) not in known:
            self.skipTest(f"{judge} or the solution is not built")
        folder = zoo.compile_member(member, backend, known)
        how = running.Settings("solution", folder=folder, quiet=True, **settings)
        runner = CPU if backend == libraries.SANITIZED else backend
        return running.run(member.task, runner, how, cases)


class Course(Test):
    """A course of one part: `self.root`, a script for its judge, `self.lab("check part1")`."""

    cuda = "none"  # what the configure step found
    emulated = checked = False
    compiler = "GNU 12.2.0"
    asan = ""

    def setUp(self) -> None:
        self.root = self.folder()
        self.part = self.root / "part1_softmax_matmul"
        self.broken: dict[str, str] = {}  # target -> first error of its build
        self.built: list[str] = []
        self.write("CMakeLists.txt", "project(flash VERSION 1.2.3 LANGUAGES CXX)\n")
        self.write("part1_softmax_matmul/tasks.toml", MANIFEST)
        for file in ("puzzle.cu", "fused_cpu.cpp", "fused_cuda.cu", "measure.cpp"):
            for folder, text in (("solution", SOLUTION), ("skeleton", SKELETON)):
                self.write(f"part1_softmax_matmul/{folder}/{file}",
                           text.format(name=file.split(".")[0]))
        self.patch(paths, ROOT=self.root, STATE=self.root / ".lab",
                   OUTPUTS=self.root / "outputs")
        self.patch(os, cpu_count=lambda: 1)  # tasks run one after another
        self.patch(build, configured=self._configured, configure=self._configured,
                   build=self._build, binary=self.binary)

    def write(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
        return file

    def commit(self) -> None:
        """Makes the course a git repository with all its files in it."""
        for command in ("init -q", "add .", "commit -q -m release"):
            subprocess.run(["git", "-c", "user.name=Student", "-c", "user.email=student@localhost",
                            *command.split()], cwd=self.root, check=True)

    def program(self, path: str, out: str = "", code: int = 0, table: str = "") -> None:
        """Puts a script in the place of a program, which writes `table` to its --output."""
        self.write(path, PROGRAM.format(python=sys.executable, calls=str(self.root / "calls"),
                                        out=out, code=code, table=table)).chmod(0o755)

    def called(self) -> list[list[str]]:
        """The calls of all programs since the last time: their names and arguments."""
        file = self.root / "calls"
        calls = file.read_text().splitlines() if file.is_file() else []
        file.unlink(missing_ok=True)
        return [json.loads(line) for line in calls]

    def release(self, **values: object) -> None:
        """Makes the course one that was handed out."""
        released.write(self.root, released.Release(**{
            "version": released.Version("7", "abc"), "parts": {}, "files": {}, "own": ()} | values))

    def binary(self, target: str, preset: str = "default") -> Path:
        return self.root / "build" / preset / "bin" / target

    def fake(self, name: str, cases: list[dict], implementation: str = "skeleton", *,
             prologue: str = "", backend: str | None = None) -> None:
        """Puts the library of a task in place, and the judge that looks at it."""
        backend = backend or ("gpu" if name in ("puzzle", "fused_cuda") else "cpu")
        target = self.target(name, implementation, backend)
        libraries = self.root / "build/default/lib"
        self.write(f"build/default/lib/lib{target}.so", json.dumps({
            "task": f"part1.{name}", "cases": cases, "backend": backend, "prologue": prologue,
            "calls": str(self.root / f"{target}.calls")}))
        judge = JUDGE.format(python=sys.executable, libraries=str(libraries))
        self.write("build/default/bin/part1_judge", judge).chmod(0o755)

    def green(self, *names: str) -> None:
        for name in names:
            self.fake(name, [case("a")])

    @staticmethod
    def target(name: str, implementation: str = "skeleton", backend: str = "") -> str:
        suffix = f"_{backend}" if backend in ("emulated", "checked") else ""
        return f"part1_{name}_{implementation}{suffix}"

    @staticmethod
    def targets(name: str, *backends: str) -> str:
        """What is built for a check of it."""
        return " ".join(f"{Course.target(name, backend=backend)}_ready" for backend in backends)

    def grade(self, *names: str, **options: object) -> outcomes.PartResult:
        """Grades these tasks, or all of them where none is named."""
        part, = manifest.load_parts()
        tasks = manifest.select([part], names)
        return self.printed(checking.grade_part, part, tasks=tasks, **options)[0]

    def ends(self, result: outcomes.TaskResult, *statuses: str) -> list[str]:
        """Compares how each case ended, and returns their messages."""
        self.assertEqual([case.status for case in result.cases], list(statuses))
        return [case.message for case in result.cases]

    def lab(self, line: str, *more: str) -> tuple[int, str]:
        """Runs a command line; its exit code, and what a person would see (stderr after stdout)."""
        code, text = self.printed(main.main, [*shlex.split(line), *more])
        lines = [line.rstrip() for line in text.splitlines()]
        return code, "\n".join(lines).strip("\n") + "\n"

    def prints(self, line: str, text: str, code: int = 0) -> None:
        self.assertEqual(self.lab(line), (code, text))

    def shows(self, line: str, *parts: str, code: int = 0) -> None:
        ended, text = self.lab(line)
        self.assertEqual(ended, code, text)
        for part in parts:
            self.assertIn(part, text)

    def last(self, line: str) -> str:
        return self.lab(line)[1].splitlines()[-1]

    def _configured(self, preset: str = "default") -> build.Config:
        gpu = "NVIDIA H200" if self.cuda == "gpu" else ""
        return build.Config(self.compiler, "2.13.10", self.cuda, "", gpu, self.emulated,
                            self.checked, self.asan)

    def _build(self, target: str | list[str], preset: str = "default", keep_going: bool = False,
               on_ready=lambda library: None) -> build.BuildResult:
        targets = [target] if isinstance(target, str) else target
        self.built.append(" ".join(targets))
        libraries = [one.removesuffix("_ready") for one in targets]
        error = next((self.broken[one] for one in libraries if one in self.broken), "")
        for library, target in zip(libraries, targets):
            if library != target and library not in self.broken:
                on_ready(library)
        return build.BuildResult(not error, error, error)
