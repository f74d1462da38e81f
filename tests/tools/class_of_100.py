"""A class of 100 submissions with known grades: good, partial, broken and hostile.

    PYTHONPATH=tools:tests/tools python tests/tools/class_of_100.py make FOLDER
    ./lab grade FOLDER --output RESULTS --seconds 2
    PYTHONPATH=tools:tests/tools python tests/tools/class_of_100.py compare RESULTS

The grader is tried with it as a whole; it takes minutes, so that ctest does not run it. `compare`
looks at RESULTS/grades.csv, and exits with 1 unless each grade is the right one.
"""

import csv
import json
import sys
import zipfile
from pathlib import Path

from attacks import ATTACKS, CUDA_ATTACKS, CUDA_FRAME, FRAME, MEMORY, QUADRATIC
from lab import derive, manifest, outcomes
from lab.instructor import reports

TASKS = {task.name: task for part in manifest.load_parts() for task in part.tasks}
ON_CPU = ("fused_cpu", "measure", "flash_forward", "flash_backward")
AFTER_FORWARD = ["from the out and lse of your forward pass",
                 "your forward pass keeps out and lse only"]
IN_CUDA = ("fused_cuda", "flash_forward_cuda", "flash_backward_cuda")
FULL, NOTHING = "full", "nothing"
CHECKS = ["checks: no race and no stray access",
          "checks: x and v are loaded no more often than they must be",
          "checks: loads are coalesced", "checks: few bank conflicts",
          "checks: all threads work", "in the order of its stream"]  # of fused_cuda

# Where the solution of fused_cpu stops working, and the cases that it then fails: no others.
GATES = {
    "pass.x.extent(2) == 0": ["no keys: 2 x 9 x 0 x 5"],
    "pass.v.extent(2) == 600": ["d3 in several chunks: 1 x 20 x 50 x 600"],
    "pass.x.extent(0) == 700": ["many batches: 700 x 3 x 9 x 5"],
    "blocks.block_1 == 64": ["blocks 64 and 16: 2 x 70 x 100 x 40",
                             "blocks 64 and 64: 1 x 130 x 190 x 257"],
}


def solution(name):
    return TASKS[name].path("solution").read_text()


def gated(condition):
    """The solution, which writes nothing where the condition holds."""
    line = "  const auto [x, v, out, stream] = pass;\n"
    code = solution("fused_cpu")
    assert code.count(line) == 1
    return code.replace(line, f"  if ({condition}) return;\n{line}")


def everyone():
    """id -> {task name: (code or None, FULL, NOTHING or the cases that fail)}"""
    good = {name: (solution(name), FULL) for name in ON_CPU}
    empty = {name: (derive.derive_task(TASKS[name]), NOTHING) for name in ON_CPU}
    all_good = good | {name: (solution(name), FULL) for name in IN_CUDA}
    made = {f"good_{number}": all_good for number in range(10)}
    made["empty"] = {name: (derive.derive_task(TASKS[name]), NOTHING) for name in all_good}
    made["nothing_at_all"] = {name: (None, NOTHING) for name in all_good}
    for name in (*ON_CPU, "fused_cuda"):
        skeleton = derive.derive_task(TASKS[name]), NOTHING
        made[f"only_{name}"] = empty | {name: all_good[name]}
        made[f"without_{name}"] = good | {name: skeleton}
        made[f"missing_{name}"] = good | {name: (None, NOTHING)}
        made[f"broken_{name}"] = good | {name: (solution(name) + "}", NOTHING)}
    for number, (condition, failing) in enumerate(GATES.items()):
        made[f"partial_{number}"] = good | {"fused_cpu": (gated(condition), failing)}
    for number, (top, body) in enumerate(ATTACKS.values()):
        code = FRAME.format(top=top, body=body)
        made[f"attack_{number}"] = good | {"fused_cpu": (code, NOTHING)}
    for name, wanted in (("a branch for the emulator", NOTHING), ("computes on the host", NOTHING),
                         ("catches what the checks found", CHECKS)):
        top, attribute, body = CUDA_ATTACKS[name]
        code = CUDA_FRAME.format(top=top, attribute=attribute, body=body)
        made[f"attack_in_cuda_{name.replace(' ', '_')}"] = good | {"fused_cuda": (code, wanted)}
    memory = FRAME.format(top="", body=QUADRATIC % MEMORY["in a vector"][1])
    failing = ["no quadratic memory: 1 x 512 x 1024 x 32"]
    made["quadratic"] = good | {"fused_cpu": (memory, failing)}
    for number in range(11):  # the attacks that eat time, beside other good work
        top, body = ATTACKS[("loops without end", "prints without end", "eats memory")[number % 3]]
        code = FRAME.format(top=top, body=body)
        made[f"endless_{number}"] = good | {"fused_cpu": (code, NOTHING)}
    made |= {f"on_cpu_{number}": good for number in range(100 - len(made))}
    for files in made.values():
        for end in ("", "_cuda"):
            code, wanted = files.get(f"flash_backward{end}", (None, NOTHING))
            if wanted == FULL and files[f"flash_forward{end}"][1] != FULL:
                files[f"flash_backward{end}"] = code, AFTER_FORWARD
    return made


def make(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, files in everyone().items():
        with zipfile.ZipFile(folder / f"{name}.zip", "w") as archive:
            archive.writestr("README.md", name)
            for task, (code, _) in files.items():
                if code is not None:  # no two students hand in the same file
                    archive.writestr(TASKS[task].shown_path(), f"{code}\n// {name}\n")
    print(f"{len(everyone())} submissions in {folder}")


def points_without(failing, task, cases):
    """What a submission gets that fails these cases and no others."""
    assert set(failing) <= {case["name"] for case in cases}, failing
    return sum(case.points * case.counts for case in outcomes.with_points(task, [
        outcomes.CaseResult(case["name"], outcomes.WRONG if case["name"] in failing else
                            outcomes.PASSED, requirement=case["requirement"]) for case in cases])
               if case.status == outcomes.PASSED)


def compare(results):
    with (results / "grades.csv").open() as file:
        got = {row["id"]: row for row in csv.DictReader(file)}
    whole = json.loads((results / got["good_0"]["folder"] / "record.json").read_text())
    cases = {task["task"]: task["cases"] for task in whole["tasks"]}
    wrong = []
    for name, files in everyone().items():
        row = got.pop(name, None)
        if row is None or row["status"] != "graded":
            wrong.append(f"{name}: not graded")
            continue
        for task, (_, expected) in files.items():
            points = (TASKS[task].points if expected == FULL else 0 if expected == NOTHING else
                      points_without(expected, TASKS[task], cases[TASKS[task].id]))
            if row[TASKS[task].id] != reports.shown(points):
                wrong.append(f"{name}: {task} has {row[TASKS[task].id]} points; "
                             f"it must have {reports.shown(points)}")
    wrong += [f"{name}: nobody handed this in" for name in got]
    print("\n".join(wrong) or f"{len(everyone())} grades are right")
    return 1 if wrong else 0


if __name__ == "__main__":
    todo, place = sys.argv[1], Path(sys.argv[2])
    sys.exit(make(place) if todo == "make" else compare(place))
