"""`./lab rung`: tests and measures one rung of a ladder."""

import argparse
import re

from lab import benchmarks, build, console, disk, paths, tables
from lab.console import say
from lab.errors import LabError

HELP = "run the tests of one rung of a ladder, and measure it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="4_balanced, or part2/4_balanced")
    parser.add_argument("--full", action="store_true", help="measure the complete sizes")


def run(args: argparse.Namespace) -> int:
    part, name, file = tables.find_rung(args.name)
    on_gpu = file.suffix == ".cu"

    disk.check_writable(paths.OUTPUTS / "csv")
    config = build.configure()  # a new file has new tests
    program, fixed = benchmarks.PROGRAMS[part]
    targets = console.stream(["cmake", "--build", paths.BUILD, "--target", "help"],
                             "looking").output
    has_gpu = config.cuda == "gpu"
    kind = "ladder"
    if on_gpu:
        kind = "(?:cuda_ladder|passes)" + ("(?:_checked)?" if has_gpu else "_checked")
    tests = re.findall(rf"^({part}_(?:{kind}|ladder_{name}_mutants)_tests):", targets, re.MULTILINE)
    symbols = [] if on_gpu else [f"{part}_ladder_weak_symbols$"]
    timed = has_gpu or not on_gpu
    compiled = []  # by nvcc, where that is there and no program can be linked
    if on_gpu and config.cuda != "none" and not has_gpu:
        library = f"{part}_cuda_ladder" + "_sm90a" * file.name.endswith(".sm90a.cu")
        compiled = [f"{file.parent.parent.name}/CMakeFiles/{library}.dir/ladder/{file.name}.o"]
    built = build.build([*tests, *compiled, *[program] * timed])
    if not built.ok:
        raise LabError(built.first_error)
    command = ["ctest", "--test-dir", paths.BUILD, "--output-on-failure", "--no-tests=error",
               "--stop-on-failure",
               "-R", "|".join([f"^({'|'.join(tests)}):", *symbols])]
    if console.foreground(command):
        raise LabError(f"{name} fails its tests; begin with the first message above, and then: "
                       f"./lab rung {name}")

    if not timed:
        say("its time needs a GPU")
    else:
        alike = [rung for rung, one in tables.rungs(file.parent.parent).items()
                 if one.suffix == file.suffix]
        names = [name, *alike[:alike.index(name)][-1:]]
        names += ["fused_64"] if part == "part1" else ["flash"]
        offers = console.stream([build.binary(program), "--help"], "looking").output
        names += dict.fromkeys(
            re.findall(r"pytorch_\w+", offers.partition("On a GPU")[2 * on_gpu]))
        csv = paths.OUTPUTS / f"csv/rung_{name}.csv"
        csv.unlink(missing_ok=True)
        options = ["--impl", ",".join(names), "--output", str(csv), *["--quick"] * (not args.full)]
        if on_gpu and part != "decode" and ".float32" not in file.read_text():  # of 16 bits
            options += ["--dtype", "bfloat16"]
        device = [] if fixed else ["--device", "cuda" if on_gpu else "cpu"]
        if code := benchmarks.run_program(part, "solution", device + options):
            return code
    page = paths.relative(file.parent.parent / "README.md")
    say(f"Next: ./lab table enters it in the table of {page}")
    return 0
