"""`./lab release`, `update` and `reset` in a release: what students get, and what they do not."""

import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from course import Course, Test
from lab import derive, disk, main, manifest, paths, released
from lab.instructor import release
from lab.verbs.student import book

SHORTEST = 12  # characters without spaces: shorter lines are braces, barriers and the like

# A loop over rows, keys or columns says nothing of the exercise.
LOOP = re.compile(r"for \((int|Index) \w+ = 0; \w+ < [\w:]+; \+\+\w+\)( \{)?")
# Lines of a solution that the course hands out elsewhere on purpose: the standard version that a
# handout starts from, and the harness's own mean and deviation. Any other line of a solution may
# not be anywhere in a release.
HANDED_OUT = {
    # barriers, declarations and handlers
    "FLASH_UNROLL", "FLASH_UNROLL_BY(4)", "__syncthreads();", "__syncwarp();",
    "double squares = 0;", "double sum = 0;", "template <class Pass>",
    ".stream = pass.stream},", ".stream = stream},",
    "} catch (const OutOfMemory& error) {", "} catch (const Unsupported& error) {",
    "rows.push_back(row);",
    # given outside of a region in the skeleton of another task
    "const Index all_see = shape.visible_keys(i0, causal), "
    "some_see = shape.visible_keys(last, causal);", "const Index i = i0 + thread.row(r);",
    # the product of part 1's standard version, which the student is to fuse with the softmax
    "const float* v_row = &v_block(j, 0);", "float* o_row = &o(i, 0);",
    "for (Index c = 0; c < d3; ++c) o_row[c] += weight * v_row[c];",
    "std::fill_n(o.data(), rows * d3, 0.0f);",
    # mean and deviation, which the harness needs to judge part1.measure
    "for (const double value : values) sum += value;",
    "return std::sqrt(squares / static_cast<double>(values.size() - 1));",
    "return sum / static_cast<double>(values.size());",
}


def lines_of(text: str) -> set[str]:
    return {" ".join(line.split()) for line in text.splitlines()}


def secrets(parts) -> dict[str, str]:
    """Each line of a solution region, with the file that it comes from."""
    found = {}
    for part in parts:
        for task in part.tasks:
            inside = False
            for line in task.path("solution").read_text().splitlines():
                if re.search(r"// *(BEGIN|END) SOLUTION", line):
                    inside = "BEGIN" in line
                elif inside and not re.match(r" *//( *STUB|   )", line):
                    plain = " ".join(line.split())
                    if len(plain.replace(" ", "")) >= SHORTEST:
                        found.setdefault(plain, task.shown_path("solution"))
    return found


def leaks(folder: Path, parts) -> list[str]:
    """Where a line of these parts' solutions stands in a folder."""
    hidden = secrets(parts)
    return [f"{file.relative_to(folder)}: {line} (of {hidden[line]})"
            for file in sorted(folder.rglob("*")) if file.is_file()
            for line in lines_of(file.read_bytes().decode("utf-8", "replace")) & hidden.keys()
            if line not in HANDED_OUT and not LOOP.fullmatch(line)]


class Listed(Test):
    def test_each_file_of_the_repository_has_a_line_and_each_line_a_file(self):
        lines, parts = release.read_list(), manifest.load_parts()
        used = {release.line_of(path, lines, parts) for path in release.tracked()}
        self.assertEqual([line for n, line in enumerate(lines) if n not in used], [])

    def test_a_file_without_a_line_and_a_line_that_cannot_be_read(self):
        lines = [("open", "PART/"), ("never", "tests/PART/"), ("everybody", "*.md")]
        parts = manifest.load_parts()
        for path, number in (("part1_softmax_matmul/x/y", 0), ("tests/part1/x", 1), ("x.md", 2)):
            self.assertEqual(release.line_of(path, lines, parts), number)
        self.assertIn("does not say who gets common/a",
                      self.refused(release.line_of, "common/a", lines, parts))
        self.patch(paths, ROOT=self.folder())
        disk.write_exact(paths.ROOT / release.LIST, "# who\neverybody a\nnobody b\n")
        self.assertIn("files.txt:3 is 'nobody b'; it must be", self.refused(release.read_list))


class Released(Test):
    """The real course, released once for all tests that only look at it."""

    @classmethod
    def setUpClass(cls):
        cls.parts = manifest.load_parts()
        cls.home = Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="lab-test-")))
        cls.out = cls.home / "students"
        cls.released = release.release(cls.out, cls.parts, [])

    def test_no_line_of_a_solution_leaks(self):
        self.assertEqual(leaks(self.out, self.parts), [])
        self.assertGreater(len(secrets(self.parts)), 200)  # the test has something to look for

    def test_what_is_left_at_home(self):
        names = {path.relative_to(self.out).as_posix() for path in self.out.rglob("*")}
        for pattern in (r"/solution/", r"/ladder/(?!README)", r"^\.git(/|$)", r"^CONTRIBUTING",
                        r"^grading/(?!CMakeLists|sandboxed_runner)", r"lab/(verbs/)?(instructor|author)/",
                        r"^tests/(tools|wrong|mutants)/"):
            self.assertEqual([name for name in names if re.search(pattern, name)], [], pattern)
        self.assertTrue(os.access(self.out / "lab", os.X_OK))
        self.assertIn("skeleton/", (self.out / "AGENTS.md").read_text())

    def test_its_book_has_no_solution_and_no_ladder(self):
        self.patch(paths, ROOT=self.out)
        found = [path.relative_to(self.out).as_posix() for path in book.gather()]
        self.assertIn("part1_softmax_matmul/README.md", found)
        hidden = re.compile("/(solution|ladder/(?!README))")
        self.assertEqual([path for path in found if hidden.search(path)], [])

    def test_skeletons_are_derived_and_recorded(self):
        record = released.read(self.out)
        tasks = [task for part in self.parts for task in part.tasks]
        self.assertEqual(record.own, tuple(sorted(task.shown_path() for task in tasks)))
        self.assertEqual(record.parts, {part.name: "closed" for part in self.parts})
        for task in tasks:
            path = task.shown_path()
            text = (self.out / path).read_text()
            self.assertEqual(text, derive.derive_task(task))
            self.assertEqual(text.encode(), released.original(self.out, path))
            self.assertEqual(record.files[path], released.sha256(self.out / path))

    def test_no_page_links_to_what_is_not_there(self):
        for page in self.out.rglob("*.md"):
            text = page.read_text()
            for target in re.findall(r"\]\(([^)#:]+)[)#]", text):
                self.assertTrue((page.parent / target).exists(), f"{page}: {target}")
            self.assertNotIn("@", re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL), page)

    def test_a_release_names_only_verbs_and_pages_that_it_has(self):
        done = subprocess.run([self.out / "lab"], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("Instructor", done.stdout)
        pages = {page: page.read_text() for page in self.out.rglob("*.md")}
        here = {file.stem for file in (self.out / "tools/lab/verbs/student").glob("*.py")}
        for page, text in {"./lab": done.stdout, **pages}.items():
            self.assertEqual(set(re.findall(r"\./lab ([a-z]+)", text)) - here, set(), page)
            self.assertNotRegex(text, r"CONTRIBUTING|a page of its own", page)

    def test_a_subset_with_solutions_open(self):
        part1, part2, part3 = self.parts[:3]
        out = self.home / "subset"
        release.release(out, [part1, part2, part3], [part1, part2])
        for name in ("part1_softmax_matmul/solution/fused_cpu.cpp",
                     "part2_flash_cpu/ladder/isa.hpp"):
            self.assertTrue((out / name).is_file(), name)
        for name in ("part3_flash_cuda/solution", "part3_flash_cuda/ladder/fragments.hpp",
                     "bonus_backward", "tests/bonus", "bonus_decode"):
            self.assertFalse((out / name).exists(), name)
        # Of part 3 nothing leaked, but for lines that parts 1 and 2 are open with.
        opened = secrets([part1, part2]).keys()
        self.assertEqual([line for line in leaks(out, [part3])
                          if not any(f": {known} (" in line for known in opened)], [])

    def configured(self, out, *options):
        """The targets of a release. Whether it builds and its tests run takes minutes:
        grading/README.md has the command."""
        self.build = out.with_name(f"{out.name}_build")
        self.succeeds("cmake", "-S", out, "-B", self.build, "-G", "Ninja", "-DFLASH_CUDA=OFF",
                      *options)
        return self.succeeds("ninja", "-C", self.build, "-t", "targets", "all")

    def succeeds(self, *argv):
        done = subprocess.run(argv, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_the_release_configures(self):
        listed = self.configured(self.out, "-DFLASH_SIMT=OFF")
        self.assertIn("part1_judge:", listed)
        self.assertNotIn("_solution:", listed)
        presets = json.loads((self.out / "CMakePresets.json").read_text())
        for part in self.parts:
            for kind in ("buildPresets", "testPresets"):
                self.assertIn(part.name, [preset["name"] for preset in presets[kind]])
            done = subprocess.run(["ctest", "--test-dir", self.build, "--output-on-failure", "-L",
                                   f"^{part.name}-skeleton$"], capture_output=True, text=True)
            self.assertRegex(done.stdout, f"Build it first: cmake --build .* --target {part.name}\n")
            self.assertEqual(done.returncode, 8)

    def test_each_part_alone_configures_and_its_runner_compiles(self):
        for part in self.parts:
            out = self.home / part.name
            release.release(out, [part], [])
            listed = self.configured(out)
            # for CUDA tasks of all parts
            runner = "flash_runner_emulated.dir/Unity/unity_0_cxx.cxx.o"
            self.assertIn(runner, listed)
            *_, command = self.succeeds("ninja", "-C", self.build, "-t", "commands",
                                        f"tests/harness/CMakeFiles/{runner}").splitlines()
            self.succeeds("sh", "-c", f"cd '{self.build}' && {command} -fsyntax-only")


class Refusals(Test):
    def test_a_folder_that_is_not_empty(self):
        out = self.folder()
        (out / "notes.txt").touch()
        self.assertIn("exists already", self.refused(main.run, ["release", str(out)]))
        self.assertEqual([file.name for file in out.iterdir()], ["notes.txt"])

    def test_a_part_that_does_not_exist(self):
        for option in ("--parts", "--open"):
            text = self.refused(main.run, ["release", str(self.folder() / "new"), option, "part7"])
            self.assertIn('no part is called "part7"', text)


class Update(Test):
    """A small release, and a newer one, of files that are made here."""

    skeleton = "part1/skeleton/a.cpp"

    def setUp(self):
        self.home = self.folder()
        self.old = {self.skeleton: "given\n\ntodo\n\nmore", "part1/README.md": "page",
                    "same": "same", "gone": "x", "mine": "theirs", "both": "old", "gone_mine": "x"}
        self.new = self.old | {"part1/README.md": "new page", "added": "new", "both": "new",
                               self.skeleton: "given, better\n\ntodo\n\nmore"}
        for path in ("gone", "gone_mine"):
            del self.new[path]
        self.student = self.make("student", self.old, "1")
        self.newer = self.make("newer", self.new, "2")

    def make(self, name, files, number):
        root = self.home / name
        for path, text in files.items():
            disk.write_exact(root / path, text)
        released.write(root, released.Release(
            released.Version(number, "abc"), {"part1": "closed"},
            {path: released.sha256(root / path) for path in files}, (self.skeleton,)))
        return root

    def put(self, path, text):
        disk.write_exact(self.student / path, text)

    def test_what_the_student_wrote_stays_and_all_else_is_new(self):
        self.put(self.skeleton, "given\n\nwork\nmore work\n\nmore")
        (self.student / self.skeleton).chmod(0o755)
        self.put("mine", "mine")
        self.put("both", "mine too")
        self.put("gone_mine", "changed")
        self.put("notes.txt", "notes")
        done = dict(released.update(self.newer, self.student))
        self.assertEqual(done, {
            self.skeleton: "your changes and the course's are merged",
            "part1/README.md": "updated", "added": "added", "gone": "removed",
            "mine": "kept, because you changed it",
            "both": "you and the course changed the same lines; yours is kept, and the new version "
                    "is both.new",
            "gone_mine": "kept, because you changed it; the course has it no longer"})
        texts = {path.relative_to(self.student).as_posix(): path.read_text()
                 for path in self.student.rglob("*") if path.is_file()
                 and path.parent.name != ".course"}
        self.assertEqual(texts, {
            self.skeleton: "given, better\n\nwork\nmore work\n\nmore",
            "part1/README.md": "new page", "same": "same", "mine": "mine", "both": "mine too",
            "both.new": "new", "gone_mine": "changed", "notes.txt": "notes", "added": "new"})
        self.assertEqual(released.version_of(self.student).number, "2")
        self.assertEqual(released.original(self.student, "both"), b"new")

    def test_without_git_or_the_old_file_both_versions_are_kept(self):
        self.put(self.skeleton, "given\n\nwork\n\nmore")
        (self.student / released.ORIGINALS).unlink()
        self.assertIn("is kept", dict(released.update(self.newer, self.student))[self.skeleton])
        last = self.make("last", self.new | {self.skeleton: "given, best\n\ntodo\n\nmore"}, "3")
        self.environment(PATH="")
        self.assertIn("is kept", dict(released.update(last, self.student))[self.skeleton])
        self.assertEqual((self.student / self.skeleton).read_text(), "given\n\nwork\n\nmore")
        self.assertIn("best", (self.student / f"{self.skeleton}.new").read_text())

    def test_an_update_that_was_interrupted_is_done_again(self):
        changes = released.update(self.newer, self.student)
        next(changes)
        changes.close()
        self.assertEqual(released.version_of(self.student).number, "1")
        list(released.update(self.newer, self.student))
        self.assertEqual((self.student / "part1/README.md").read_text(), "new page")
        self.assertEqual(list(released.update(self.newer, self.student)), [])

    def test_it_does_not_follow_a_link_out_of_the_folder(self):
        outside = self.home / "outside"
        outside.mkdir()
        shutil.rmtree(self.student / "part1")
        (self.student / "part1").symlink_to(outside)
        text = self.refused(list, released.update(self.newer, self.student))
        self.assertIn("is a symbolic link", text)
        self.assertEqual(list(outside.iterdir()), [])

    def test_the_verb_says_what_changed(self):
        self.patch(paths, ROOT=self.student)
        code, text = self.printed(main.main, ["update", str(self.newer)])
        self.assertEqual((code, text.splitlines()[-1]),
                         (0, f"{self.student}: version 2 (abc) (it was 1 (abc)); 6 files differed"))
        self.assertIn("  added: added\n", text)
        self.assertIn("NEW is this folder", self.refused(main.run, ["update", str(self.student)]))
        self.assertIn("is not a released course",
                      self.refused(main.run, ["update", str(self.home)]))


class InARelease(Course):
    def test_reset_needs_no_git_and_no_solution(self):
        shown = "part1_softmax_matmul/skeleton/fused_cpu.cpp"
        self.write(shown, "as handed out\n")
        self.release(files={shown: ""})
        self.write(shown, "mine")
        (self.part / "solution/fused_cpu.cpp").unlink()
        self.shows("reset fused_cpu --yes", "is the skeleton again")
        self.assertEqual((self.root / shown).read_text(), "as handed out\n")
