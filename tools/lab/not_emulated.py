"""What CUDA has and the emulator does not: one sentence in place of the compiler's message."""

import re

_NAME = r"'(?:(?:class|struct|enum) )?(?:\w+::)*(\w+)"
# How g++ and clang++ say that something is not there.
_LACKS = re.compile("|".join((
    r"no (?:type |member |template )*named '(\w+)'",
    rf"(?:no arguments to|no matching function for call to|of overloaded|call to) {_NAME}",
    r"variable or field '(\w+)' declared void",
    rf"(?:undeclared identifier|unknown type name) {_NAME}",
    rf"{_NAME}' (?:was not declared|has not been declared|does not name a type|is not a member)",
    r"(?:aggregate|incomplete type) '(__nv_fp\w+)",
    r"fatal error: '?([\w./]+?)'?(?:: No such file| file not found)")))
_OTHER_TYPES = re.compile("no matching function|overloaded|is ambiguous")
_MEMBER = re.compile("cudaDeviceProp|cooperative_groups|nvcuda|'cg'")
_PTX = re.compile(r"Error: |error: (?:.*'asm'|.* in asm|.*inline assembly"
                  r"|unknown (?:directive|token)|invalid (?:register|instruction))")

_OTHERWISE = "emulator/README.md lists what it supports"
# A name, and what to write instead, which may quote groups of the name. The first match counts.
_ADVICE = tuple((re.compile(name), words) for name, words in (
    (r"__(?:all|any|ballot|shfl(?:_up|_down|_xor)?)",
     r"\g<0>_sync() names the lanes that take part"),
    (r"__reduce_\w+", "take __shfl_xor_sync(), or common/cuda/warp.hpp"),
    (r"__v[a-z]+\d?|__vi\w+|__dp[24]a\w*|__pm[0-3]",
     "compute with each byte or half word by shifts and ordinary integers"),
    (r"(__\w+)_r[zud]", r"it rounds to the nearest: \1_rn(), or the ordinary operation or cast"),
    (r"__\w+_rn|__h\w+2double|__double2\w+|__[u]?(?:mul24|r?hadd)", "write the ordinary operation"),
    (r"(?:surf|tex)(?:\dD|Cubemap)\w*|texture|surface|cuda\w*(?:Texture|Surface|Array|Mipmap"
     r"|Resource|Channel|AddressMode|FilterMode|ReadMode)\w*", "read by an ordinary pointer"),
    (r"cuda\w*(?:Graph|Capture|UserObject)\w*", "start the kernels one after the other"),
    (r"\w*[cC]luster\w*", "a cluster has one block here: common/cuda/cluster.hpp"),
    (r"cuda/barrier|_*(?:mb|awb)arrier\w*", "take the mbarriers of common/cuda/mbarrier.hpp"),
    (r"cuda/pipeline|cuda_pipeline\w*\.h|__pipeline_\w+|(?:\w+/)?memcpy_async(?:\.h)?",
     "take the cp.async of common/cuda/async_copy.hpp"),
    (r"cub/.*", "common/cuda/warp.hpp has sums and maxima of a warp"),
    (r"thrust/.*", "common/cuda/device_tensor.hpp has memory of the device"),
    (r"curand\w*\.h", "random numbers come from the host"),
    (r"__cvta_\w+|__is[A-Z]\w+", "take shared_address() of common/cuda/shared_address.hpp"),
    (r"(atomic\w+?)_(?:block|system)", r"take \1(), for the whole GPU"),
    (r"atomic\w+", "repeat atomicCAS() on the bits until no other thread came between"),
    (r"cudaOccupancy\w+", "it has no registers to count"),
    (r"cuda(?:Malloc|Memcpy|Memset)\w*[23]D\w*|cudaMallocPitch", "cudaMemcpy() copies a row"),
    (r"(?:make_)?(u?)long(\d)\w*", r"take \1int\2 or \1longlong\2"),
    (r"cudaLaunch\w*", "take launch() of common/cuda/launch.hpp"),
    (r"this_(?:multi_)?grid|(?:multi_)?grid_group",
     "a block runs to its end before the next; end the kernel there"),
    (r"coalesced_(?:threads|group)", "the GPU decides which lanes run together; take a tile"),
    (r"(?:labeled|binary)_partition|(?:in|ex)clusive_scan\w*|invoke_one\w*|barrier_(?:arrive|wait)",
     "of cooperative groups it has blocks, tiles of a warp, and reduce()"),
    (r"__nv_(?:fp|cvt)\w+|cuda_fp[46]\.h", "take half (cuda_fp16.h) or bfloat16"),
    (r"__h\w+|__\w*(?:half|bfloat16)\w*|h2?(?:ceil|cos|exp2|exp10|exp|floor|log2|log10|log|rcp"
     r"|rint|rsqrt|sin|sqrt|tanh|tanh_approx|trunc)", "convert to float and back"),
    (r"(?:sin|cos|sincos)pif?|cyl_bessel_i[01]f?|erf(?:c?inv|cx)f?|r?norm(?:[34]d|cdf|cdfinv)?f?"
     r"|rcbrtf?|rhypotf?|fdividef?|u?l?l?m(?:ax|in)", "it has the functions of <math.h>"),
    (r"(?:cute|cutlass|cuda|cooperative_groups|nv|nvtx3)/.*|(?:cu|nv|helper_|sm_)\w*\.h",
     "write it with cuda_runtime.h, cooperative_groups.h and mma.h"),
))
_CUDA = re.compile(r"__\w+|(?:cuda|cublas|curand|cudnn|cu)[A-Z]\w+"
                   r"|(?:make_)?u?(?:char|short|int|long|longlong|float|double)\d\w*")


def _advice(name: str) -> str:
    return next((match.expand(words) for pattern, words in _ADVICE
                 if (match := pattern.fullmatch(name))), "")


def explained(line: str, includes: list[str]) -> str:
    """A compiler's first error, in our words where it is about what the emulator lacks. `includes`:
    the places of the #includes that lead to it, the innermost first."""
    place, _, message = line.partition(" ")
    if place.startswith("/"):
        by = next((n for n, each in enumerate(includes) if re.match(r"[^/].*\.cu:\d+", each)), None)
        if by is None:
            return line
        header = [place, *includes][by].split(":")[0].rpartition("/include/")[2]
        words = _advice(header) or "nvcc's is for nvcc only"
        return f"{includes[by]}: error: the emulator has no {header}: {words}"
    if not re.match(r"\S+\.cu:\d+", place):
        return line
    if _PTX.match(message):
        return f"{place} error: the emulator has no inline PTX: common/cuda/ wraps instructions"
    found = _LACKS.search(message)
    name = next(filter(None, found.groups())) if found else ""
    words = _advice(name)
    if not words and not (_CUDA.fullmatch(name) or name and _MEMBER.search(message)):
        return line
    types = " for these types" if _OTHER_TYPES.search(message) else ""
    guess = re.search(r"did you mean '(\w+)'", message)
    mistyped = f" (did you mean {guess[1]}?)" if guess and not words else ""
    return f"{place} error: the emulator has no {name}{types}{mistyped}: {words or _OTHERWISE}"
