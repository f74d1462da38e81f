"""Arrows run one way: who includes or imports whom, in all of the repository.

A file may use its own room and those below it, and folders make no circle. The emulator's headers
are on the include path in the place of CUDA's, so `<cuda_runtime.h>` is no arrow to the emulator.
"""

import ast
import functools
import graphlib
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import PurePosixPath as Path

from course import Test
from lab import paths
from lab.instructor import release

# From below; what is not of one of these is of the last.
ROOMS = ("common", "emulator", "part1_softmax_matmul", "part2_flash_cpu", "part3_flash_cuda",
         "bonus_backward", "bonus_decode", "tests/harness", "benchmarking", "grading", "tools",
         "tests")
# The emulator knows numbers, errors, lines of code and what is exported, and no tensor.
OF_COMMON = {"common/counted.hpp", "common/error.hpp", "common/export.hpp", "common/half.hpp",
             "common/lines.hpp"}

Arrow = tuple[Path, Path]


def arrows(files: Iterable[Path], read) -> list[Arrow]:
    known = set(files)
    found = []
    for file in known:
        if file.suffix == ".py":
            found += [(file, target) for target in imported(read(file)) if target in known]
        elif file.suffix in (".cpp", ".hpp", ".cu", ".h", ".inc", ""):
            for name in re.findall(r'^\s*#\s*include\s*"([^"]+)"', read(file), re.MULTILINE):
                places = (file.parent / name, Path(name), Path("tests", name))
                found += [(file, place) for place in places if place in known][:1]
    return found


def imported(text: str) -> Iterable[Path]:
    """The modules of tools/ and of tests/tools/ that a file imports, wherever in it."""
    names = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names] + [str(node.module)]
    for name in names:
        inside = name.replace(".", "/") + ".py"
        yield from (Path("tools", inside), Path("tests/tools", inside))


@functools.cache
def room(file: Path) -> int:
    return next(n for n, name in enumerate(ROOMS) if file.is_relative_to(name))


@functools.cache
def folder(file: Path) -> str:
    """The folders in emulator/headers are those of CUDA's include path: one folder here."""
    inside = "emulator/headers"
    return inside if file.is_relative_to(inside) else str(file.parent)


def wrong(found: list[Arrow]) -> list[str]:
    """What goes up, and the first circle."""
    problems = [f"{a} includes {b}, which is above it" for a, b in found if room(a) < room(b)]
    problems += [f"{a} includes {b}; of common/ the emulator has {', '.join(sorted(OF_COMMON))}"
                 for a, b in found if ROOMS[room(a)] == "emulator"
                 and ROOMS[room(b)] == "common" and str(b) not in OF_COMMON]
    below = defaultdict(set)
    for a, b in found:
        if folder(a) != folder(b) and room(a) == room(b):
            below[folder(a)].add(folder(b))
    try:
        tuple(graphlib.TopologicalSorter(below).static_order())
    except graphlib.CycleError as error:
        circle = error.args[1][::-1]
        steps = [min(f"{a} -> {b}" for a, b in found if (folder(a), folder(b)) == step)
                 for step in zip(circle, circle[1:])]
        problems.append(f"a circle: {'; '.join(steps)}")
    return problems


class Order(Test):
    @classmethod
    def setUpClass(cls):
        files = [Path(file) for file in release.tracked() if "/" in file]
        cls.found = arrows(files, lambda file: (paths.ROOT / file).read_text())

    def test_arrows_run_one_way(self):
        self.assertGreater(len(self.found), 1000)
        self.assertEqual(wrong(self.found), [])

    def test_no_line_of_cmake_is_wider_than_100_columns(self):  # ./lab format knows C++ and CUDA
        files = [file for file in release.tracked() if file.endswith(("CMakeLists.txt", ".cmake"))]
        self.assertEqual([f"{file}:{number}" for file in files for number, line in enumerate(
            (paths.ROOT / file).read_text().splitlines(), 1) if len(line) > 100], [])
