"""`./lab grade`: grades submissions, from bundles to a table of grades."""

import argparse
import contextlib
import os
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lab import build, manifest, paths, text
from lab.backends import CHECKED, EMULATED, GPU
from lab.console import say
from lab.errors import LabError
from lab.instructor import export, reports, slurm, speed
from lab.instructor.grader import Grader, hidden_cases, write
from lab.instructor.reports import INFRA_ERROR
from lab.instructor.speed import Speed
from lab.manifest import Task
from lab.outcomes import PASSED
from lab.submission import gpu, judging, sandbox, submissions

HELP = "grade submissions: bundles, zips, folders; points, reports, a page of the class"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("places", nargs="+", type=Path, metavar="FILE_OR_DIR",
                        help="a bundle, a zip or a folder; or a folder of such")
    parser.add_argument("--output", type=Path, default=paths.OUTPUTS / "grades", metavar="DIR",
                        help="where results go (default: outputs/grades); what is there and still "
                             "holds is not graded again")
    parser.add_argument("--tasks", metavar="PART|TASK,...", help="grade only these (default: all)")
    parser.add_argument("--jobs", type=int, metavar="N",
                        help="submissions that are graded at the same time (default: one a core; "
                             "with --slurm: as many as the cluster takes)")
    parser.add_argument("--seconds", type=float, default=20, metavar="S",
                        help="that one call of a student's function may take (default: 20)")
    parser.add_argument("--emulate", action="store_true",
                        help="CUDA tasks on the emulator, also where there is a GPU")
    parser.add_argument("--speed", metavar="BOARD=SPEEDUP:POINTS",
                        help="points for speed over the reference, on a board of the leaderboard, "
                             "as in part2-cpu=2:1; then one submission is graded at a time")
    parser.add_argument("--slurm", action="store_true",
                        help="grade on the nodes of a cluster, in job arrays")
    parser.add_argument("--sbatch", default="", metavar="OPTIONS",
                        help="of these jobs, as in --sbatch='--partition=cpu --time=30'")
    parser.add_argument("--sbatch-gpu", metavar="OPTIONS",
                        help="CUDA tasks run on GPUs, in jobs with these options, as in "
                             "--sbatch-gpu='--partition=gpu --gres=gpu:1'; without it they are "
                             "emulated")


def run(args: argparse.Namespace) -> int:
    if (args.jobs is not None and args.jobs < 1) or not args.seconds > 0:
        raise LabError("--jobs must be at least 1, and --seconds above 0")
    if args.speed and not args.slurm and (args.jobs or 1) > 1:
        raise LabError("--speed measures one submission at a time on this computer: leave --jobs "
                       "out")
    if args.sbatch_gpu is not None and (not args.slurm or args.emulate):
        raise LabError("--sbatch-gpu goes with --slurm, and not with --emulate")
    wanted_speed = speed.threshold(args.speed) if args.speed else None
    # On a cluster a node may have what this computer lacks, and says so if not.
    if not args.slurm and (trouble := sandbox.trouble()):
        raise LabError(trouble)
    if args.sbatch and not args.slurm:
        raise LabError("--sbatch goes with --slurm")
    wanted = manifest.select(manifest.load_parts(),
                             () if args.tasks is None else args.tasks.split(","))
    everyone, no_submission = submissions.find(args.places, wanted)
    if args.slurm:
        on_gpu = args.sbatch_gpu is not None and _builds_for_gpu(wanted)
    else:
        on_gpu = not args.emulate and _has_gpu(wanted)
        if on_gpu and (trouble := sandbox.trouble(on_gpu)):
            raise LabError(f"{trouble} (--emulate grades without the GPU)")
    tasks, left_out = _set_up(wanted, on_gpu)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="lab-grade-"))
        bench = judging.set_up(tasks, Path(folder, "course"), paths.BUILD,
                               args.seconds, (GPU, CHECKED) if on_gpu else (EMULATED, CHECKED))
        if len(everyone) > 1:  # Gradescope gives one at a time
            _try_hidden_cases(tasks, bench)
        names = [task.id for task in tasks]
        measured = wanted_speed and (
            Speed(wanted_speed, None) if args.slurm
            else stack.enter_context(speed.ready(wanted_speed, names)))
        grader = Grader(tasks, left_out, bench, args.output, measured)
        if args.slurm:
            if wanted_speed:
                speed.check(wanted_speed, names)
                if wanted_speed.board.device == "cuda" and not on_gpu:
                    raise LabError(f"--speed {wanted_speed.board.name} needs a GPU: --sbatch-gpu "
                                   "says which jobs have one")
            of_gpu = shlex.split(args.sbatch_gpu) if on_gpu else None
            records = slurm.grade(grader, everyone, shlex.split(args.sbatch), of_gpu, args.speed,
                                  args.jobs, Path(folder))
        else:
            grader.bench = judging.precompiled(bench, tasks, Path(folder, "first"))
            records = grader.grade(everyone, 1 if measured else args.jobs or os.cpu_count() or 1)
    earlier, differ = grader.earlier(everyone)
    write(args.output / "grades.csv", reports.grades([*records, *earlier]))
    write(args.output / "index.html", reports.page([*records, *earlier], "Grades"))
    for before, name in export.twice(record.id for record in (*records, *earlier)):
        say(f"{text.line(before)} has a row, and {text.line(name)} was handed in after it; ./lab "
            "export takes the later", "yellow")
    for line in no_submission:
        say(f"left out: {text.line(line)}", "yellow")
    if earlier:
        say(f"rows kept from earlier commands: {len(earlier)}")
    if differ:
        say(f"not in grades.csv, because graded with other cases, tasks or options: "
            f"{', '.join(map(text.line, differ))}; name these submissions, too (DIR/*), and all "
            "are graded alike", "yellow")
    failed = [record for record in records if record.status == INFRA_ERROR]
    for record in failed:
        say(f"{text.line(record.id)} was not graded: {text.line(record.error)}", "red")
    nothing = [record for record in records if record.status != INFRA_ERROR and not record.earned]
    for record in nothing:
        say(f"{text.line(record.id)} has 0 points: {reports.why(record)}", "yellow")
    if left_out:
        say(f"no judge yet, and not in the points: {', '.join(left_out)}", "yellow")
    say(f"{len(records) - len(failed)} graded, {len(failed)} not graded; "
        f"{paths.relative((args.output / 'grades.csv').absolute())}, index.html, and a folder a "
        "submission")
    if failed:
        say("the same command again grades what is missing")
    return 1 if failed else 0


def _try_hidden_cases(tasks: Sequence[Task], bench: judging.Bench) -> None:
    """LabError where the reference solution does not pass an instructor's own cases."""
    files = {file.stem for file in hidden_cases()}
    for task in tasks:
        if f"{task.part}_{task.name}" in files:
            say(f"trying the hidden cases of {task.name} on its solution")
            try:
                tried = judging.judge(task, task.path("solution").read_bytes(), bench)
            except sandbox.InfraError as error:
                raise LabError(str(error)) from None
            for case in tried.cases:
                if case.name.startswith("hidden: ") and case.status != PASSED:
                    raise LabError(f"the solution of {task.name} fails {case.name}: {case.message}")


def _has_gpu(wanted: Sequence[Task]) -> bool:
    """Whether CUDA tasks run on a GPU here, and their checks on the emulator."""
    if not gpu.devices() or not any(task.is_cuda for task in wanted):
        return False
    known = build.configured("default")
    return known.cuda == "gpu" and known.checked


def _builds_for_gpu(wanted: Sequence[Task]) -> bool:
    """Whether there are tasks for the GPUs of a cluster; this computer needs none. LabError where
    it cannot build for them."""
    if not any(task.is_cuda for task in wanted):
        return False
    known = build.configured("default")
    if known.cuda == "none" or not known.checked:
        raise LabError("--sbatch-gpu needs nvcc and g++ here, to build what the nodes run "
                       "(./lab doctor says more)")
    return True


def _set_up(wanted: Sequence[Task], on_gpu: bool) -> tuple[list[Task], tuple[str, ...]]:
    """Builds the judges. The tasks that have one, and the ids of the others."""
    hidden_cases()
    build.configured()
    built = build.build(judging.TARGET)
    if not built.ok:
        raise LabError(f"the judges do not build: {built.first_error}")
    if any(task.is_cuda for task in wanted):
        say(f"CUDA tasks run on {'the GPU, and for their checks on ' * on_gpu}the emulator")
    tasks = [task for task in wanted if judging.can_judge(task, paths.BUILD)]
    if not tasks:
        raise LabError("none of these tasks has a judge")
    return tasks, tuple(task.id for task in wanted if task not in tasks and task.points)
