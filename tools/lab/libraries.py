"""How the build compiles the file of a task, or of a rung for a GPU: for whoever compiles another
file in its place (a submission, a program of the zoo, a rung with other tiles).

CMake writes it down (flash_list_library in cmake/FlashTargets.cmake).
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class Library:
    file: str
    backend: str  # lab.backends, or SANITIZED
    compiler: str
    linker: str
    options: tuple[str, ...]
    definitions: tuple[str, ...]
    includes: tuple[str, ...]
    link: tuple[str, ...]           # options of the linker
    architectures: tuple[str, ...]  # of nvcc: 80-virtual, 90a-real, 90

    def command(self) -> list[str]:
        """What compiles a file in the place of this one, without the source and the result."""
        return [self.compiler, *self.options, *self.code(),
                *(f"-D{name}" for name in self.definitions),
                *(f"-I{place}" for place in self.includes)]

    def device_pass(self) -> list[str]:
        """What lets nvcc compile the kernels alone, for one architecture; a warning is none of its
        errors."""
        number = self.architectures[0].partition("-")[0] if self.architectures else "80"
        options = tuple(word for word in self.options if "-Werror" not in word)
        return [*replace(self, options=options, architectures=(f"{number}-virtual",)).command(),
                "-DFLASH_ONE_CONFIGURATION", "-ptx"]

    def code(self) -> list[str]:
        """nvcc's options for the architectures, as CMake writes them."""
        words = []
        for architecture in self.architectures if self.backend == "gpu" else ():
            number, _, kind = architecture.partition("-")
            made = [f"{which}_{number}" for which, other in (("compute", "real"), ("sm", "virtual"))
                    if kind != other]
            words.append(f"--generate-code=arch=compute_{number},code=[{','.join(made)}]")
        return words


SANITIZED = "sanitized"  # with AddressSanitizer: ./lab check --sanitize
Known = dict[tuple[Path, str], Library]  # of a file and a backend


def load(build: Path) -> Known:
    """What the build in this folder compiles."""
    found = {}
    for listing in sorted(build.glob("libraries.*.json")):
        for entry in json.loads(listing.read_text()):
            # CMake writes an empty list as one empty text.
            values = {key: tuple(filter(None, value)) if isinstance(value, list) else value
                      for key, value in entry.items()}
            found[Path(entry["file"]), entry["backend"]] = Library(**values)
    return found
