"""What a process needs to compute on a GPU, and what it must not find: for the sandbox.

The driver's library may be in a folder that only the file /etc/ld.so.cache knows, which a sandbox
does not show; so it is looked for here.
"""

import os
import re
import subprocess
from functools import cache
from pathlib import Path

# Libraries that do the work, and compilers for the GPU.
_VENDOR = re.compile(r"lib(cublas|cudnn|cutensor|cusparse|cusolver|cutlass|cudss|nvrtc|nvJitLink"
                     r"|nvfatbin|nvvm|torch|mkl|openblas|blas)\w*[.-].*")


def devices() -> list[Path]:
    """The files in /dev that CUDA opens."""
    names = [*sorted(place.name for place in Path("/dev").glob("nvidia[0-9]*")),
             "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"]
    return [place for name in names if (place := Path("/dev", name)).exists()]


@cache
def _known_libraries() -> dict[str, Path]:
    """What the dynamic linker finds by name."""
    listed = output("ldconfig", "-p") or output("/sbin/ldconfig", "-p")
    found = re.findall(r"^\s*(\S+) \([^)]*x86-64[^)]*\) => (\S+)$", listed, re.MULTILINE) or \
        re.findall(r"^\s*(\S+) \([^)]*\) => (\S+)$", listed, re.MULTILINE)
    return {name: Path(place) for name, place in reversed(found)}


def driver_folder() -> str:
    """The folder of the driver's library; "" where it is not found."""
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    if place := _known_libraries().get("libcuda.so.1"):
        folders.append(str(place.parent))
    return next((folder for folder in folders
                 if folder and Path(folder, "libcuda.so.1").exists()), "")


def chosen() -> str:
    """Which GPU is used where there are several, as nvidia-smi counts them."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]


def variables() -> dict[str, str]:
    """Of judge and runner, so that both use the same GPU."""
    return {"CUDA_VISIBLE_DEVICES": chosen(), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def needed(library: Path) -> dict[str, Path]:
    """The libraries that this one is linked with, by name, where the linker finds them."""
    listed = output("ldd", library)
    return {name: Path(place).resolve()
            for name, place in re.findall(r"^\s*(\S+) => (/\S+)", listed, re.MULTILINE)}


def vendor_files() -> list[Path]:
    """Of /usr: libraries that do the exercise, in the folders where a program finds any, and all of
    Python, whose packages have such libraries too."""
    folders = {place.resolve().parent for place in _known_libraries().values()}
    files = {place.resolve() for folder in folders for place in folder.glob("lib*")
             if _VENDOR.fullmatch(place.name)}
    packages = [*Path("/usr/lib").glob("python3*"), *Path("/usr/local/lib").glob("python3*")]
    return sorted(place for place in (*files, *packages)
                  if place.is_relative_to("/usr") and not place.is_symlink())


def output(*command: object) -> str:
    """What a command prints; "" where it is not installed."""
    try:
        return subprocess.run([str(word) for word in command], capture_output=True, text=True,
                              errors="replace").stdout
    except OSError:
        return ""
