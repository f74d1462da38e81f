"""What a student's object file may contain, and the words for what it may not.

The audit makes an attack loud; it is not what the grades stand on. A student's code runs in a
process of its own, which returns outputs and never a verdict.
"""

import re
from collections.abc import Iterable

# What compiled arithmetic needs of the C library.
_MATH = ("abs acos asin atan atan2 cbrt ceil copysign cos cosh erf exp exp2 exp10 expm1 fabs fdim "
         "floor fma fmax fmin fmod frexp hypot ilogb isinf isnan ldexp lgamma llrint llround log "
         "log10 log1p log2 logb lrint lround modf nearbyint nextafter pow remainder rint round "
         "scalbn sin sincos sinh sqrt tan tanh tgamma trunc").split()
_PLAIN = {
    *(name + suffix for name in _MATH for suffix in ("", "f", "l")),
    "memcpy", "memmove", "memset", "memcmp", "memchr", "strlen", "strcmp", "bcmp", "abort",
    # to look at values while debugging: what is printed is not read
    "printf", "puts", "putchar", "snprintf", "vsnprintf",
    "_GLOBAL_OFFSET_TABLE_", "__dso_handle", "__stack_chk_fail", "__assert_fail", "_Unwind_Resume",
    "__gxx_personality_v0", "__tls_get_addr",
    *(f"__{name}_chk" for name in ("memcpy", "memmove", "memset", "printf", "snprintf", "sprintf")),
}
_ALLOWED = re.compile(
    r"__cxa_(throw|rethrow|begin_catch|end_catch|allocate_exception|free_exception|bad_cast"
    r"|guard_(acquire|release|abort)|throw_bad_array(_new)?_length|pure_virtual|atexit"
    r"|get_exception_ptr|init_primary_exception)"
    r"|__(add|sub|mul|div|fix|float|ext|trunc)\w*[sdtx]f\w*"  # arithmetic of the compiler's library
    r"|_Zn[wa]m\w*|_Zd[la]Pv\w*"                              # operator new and delete
    r"|_ZNK?St\w+|_ZSt\w+|_ZT[VIST]N?K?St\w+|_ZTVN10__cxxabiv1\w+|_ZN?K?9__gnu_cxx\w+"
    r"|_ZT[IV][a-z]")
_REFUSED_OF_STD = re.compile(
    r"St6thread|St7jthread|10filesystem|basic_[io]?fstream|basic_filebuf|basic_file|13random_device"
    r"|17_*async|18condition_variable|_M_start_thread|St3_V2|8ios_base4Init")

# Sections that a compiler makes of functions and constants.
_SECTIONS = re.compile(
    r"\.(rela?\.)?(text|rodata|data|bss|tdata|tbss|eh_frame|gcc_except_table|tm_clone_table)"
    r"([._]\S*)?|\.(group|comment|note\S*|symtab|strtab|shstrtab|symtab_shndx|llvm_addrsig)"
    r"|\.gnu\.\S*|\.(rela?\.)?debug_\w+|")
_CONSTRUCTORS = re.compile(r"\.(rela?\.)?(preinit_array|init_array|fini_array|ctors|dtors|init"
                           r"|fini)(\.\S*)?")
MOST_DATA = 64 * 1024  # bytes of variables that live as long as the program

# What CUDA code may use of the emulator and of common/cuda: what kernels and launches are made of.
_OF_CUDA = re.compile(
    r"flash_simt_\w+|_ZN5flash9grid_sizeEl"
    r"|_ZN5flash6device(\d+)(allocate|free|check_launch|reserve_shared_memory|throw_cuda_error"
    r"|shared_memory_per_block|compute_capability|multiprocessors|synchronize|fill_bytes"
    r"|tensor_map)E\w*"
    r"|_ZN5flash4simt\d+(run|barrier|warp_operation|matrix_operation|thread_number"
    r"|dynamic_shared_memory|read_from_absent_lane|before_atomic|nap|fence|misaligned|async_\w+?"
    r"|add_products|tma_wait|wgmma\w*?|set_registers|bits_of_float16|float_of_float16)E\w*"
    r"|_ZN5flash4simt3ptx\w+"
    r"|_Z\d+cuda(GetLastError|PeekAtLastError|GetErrorString|GetErrorName|FuncSetAttribute"
    r"|FuncGetAttributes|GetDevice|DeviceGetAttribute|Memset|RuntimeGetVersion"
    r"|DeviceSynchronize|StreamSynchronize)\D\w*")

# The same of a library for a GPU: common/cuda, what nvcc makes of kernels and launches, and what
# CUDA's runtime says about a GPU. Streams, graphs, events and memory of its own it does not need.
# `exit` is what nvcc puts in the place of a device function on the host.
_ON_GPU = re.compile(
    r"__cuda(RegisterFatBinary(End)?|UnregisterFatBinary|RegisterFunction|RegisterVar"
    r"|PushCallConfiguration|PopCallConfiguration|LaunchKernel\w*|GetKernel|InitModule)"
    r"|cuda(LaunchKernel(ExC)?|GetLastError|PeekAtLastError|GetErrorString|GetErrorName"
    r"|FuncSetAttribute|FuncGetAttributes|GetDevice|DeviceGetAttribute|RuntimeGetVersion"
    r"|OccupancyMaxActive\w+|Memset(Async)?|DeviceSynchronize|StreamSynchronize)(_ptsz|_v\d+)?"
    r"|atexit|exit")
_SECTIONS_OF_GPU = re.compile(r"\.nv_fatbin|\.nvFatBinSegment|\.(rela\.)?nvFatBinSegment"
                              r"|__nv_module_id|\.rela\.init_array|\.init_array")
_REGISTERS = 8  # bytes of .init_array: the one function that tells the runtime of the kernels

# Words that a .cu file may not have, after the headers that it includes: for the compiler, which
# sees through macros. Whether it runs on a GPU or on the emulator makes no difference to a
# solution, and what would hide code from the emulator's checks needs one of these.
_WORDS = {
    **dict.fromkeys(("FLASH_SIMT", "FLASH_SIMT_CHECKED", "__CUDACC__", "__NVCC__", "__CUDA_ARCH__",
                     "__SANITIZE_THREAD__", "is_emulated"),
                    "code must not know whether it runs on a GPU or on the emulator"),
    **dict.fromkeys(("simt", "FLASH_SIMT_UNCHECKED"), "it is inside the emulator"),
    **dict.fromkeys(("asm", "__asm", "__asm__", "no_sanitize", "__no_sanitize__",
                     "no_sanitize_thread", "__no_sanitize_thread__"),
                    "the emulator's checks would not see what it does"),
}

# Why a name is refused: the first pattern that fits.
_REASONS = (
    (r"dlopen|dlsym|dlmopen|dlvsym", "it loads other code at run time"),
    (r"system|popen|exec\w*|fork|vfork|clone\w*|posix_spawn\w*", "it starts another program"),
    (r"socket|connect|send\w*|recv\w*|getaddrinfo", "it uses the network"),
    (r"pthread_\w+|\w*St6thread\w*|\w*_M_start_thread\w*|GOMP_\w+|omp_\w+|\w*async\w*",
     "it starts threads, and this task is written without"),
    (r"malloc|calloc|realloc|free|aligned_alloc|posix_memalign|memalign|valloc",
     "it takes memory that nobody counts; use std::vector or Tensor"),
    (r"mmap\w*|munmap|mprotect|mremap|brk|sbrk|shm\w+|memfd_create",
     "it asks the system for memory; use std::vector or Tensor"),
    (r"f?open\w*|read|write|pread\w*|pwrite\w*|fread|fwrite|std(in|out|err)|f?getc|f?put[cs]"
     r"|fprintf|\w*fstream\w*|\w*filebuf\w*|\w*filesystem\w*|unlink|rename|stat\w*",
     "it works with files; printf may be used to look at values"),
    (r"_?_?exit|_Exit|quick_exit|atexit|raise|kill|signal|sigaction|longjmp|_setjmp|__sigsetjmp",
     "it ends the program, or catches its signals"),
    (r"\w*random_device\w*|rand\w*|srand\w*|time|clock\w*|gettimeofday",
     "its result could depend on the time or on chance"),
    (r"(_Z\d+)?cuda(Malloc|Free)\w*",
     "it takes device memory that nobody counts; use DeviceTensor or device::allocate"),
    (r"(_Z\d+)?cudaMemcpy\w*|_ZN5flash6device\d+copy_to_\w*",
     "it copies between host and device; kernels compute from what is on the device"),
    (r"(_Z\d+)?cuda(StreamSetAttribute|Ctx\w+|DeviceSet\w+)(_ptsz)?",
     "it changes the GPU or its cache for what comes after it"),
    (r"(_Z\d+)?cuda(Stream|Event|Graph|LaunchHostFunc|Launch\w*Cooperative)\w*",
     "its work belongs on the stream that it is given, and is done when that is empty"),
    (r"cu[A-Z]\w*|nvrtc\w*|cuda(GetDriverEntryPoint|Library|Module|Kernel)\w*",
     "it asks the driver itself, or loads kernels that are not in its file"),
    (r"cublas\w*|cudnn\w*|cutlass\w*|cblas_\w*|[sd]gemm\w*|mkl_\w*", "a library does the exercise"),
    (r"\w*oracle\w*|\w*(softmax_matmul_magnitude|make_input)\w*", "it calls the reference"),
    (r"\w*5flash\w*|\w*simt\w*", "it is inside the course, and not part of this task's interface"),
    (r"\w*8ios_base4Init\w*", "<iostream> runs code before the first call; use printf"),
)


def may_be_used_in_cuda(name: str) -> bool:
    """Of a symbol of the libraries of the emulator or of a GPU: whether student code may use it."""
    return bool(_OF_CUDA.fullmatch(name))


def refused_words(source: str) -> str:
    """What the compiler gets before a student's .cu file, so that it refuses the words in it. What
    the file includes comes first, because headers have some of the words for good reasons."""
    included = re.findall(r'(?m)^[ \t]*#[ \t]*include[ \t]*(<[\w./+-]+>|"[\w./+-]+")', source)
    return "\n".join([*(f"#if __has_include({name})\n#include {name}\n#endif" for name in included),
                      *(f"#pragma GCC poison {word}" for word in _WORDS), ""])


def words_found(output: str) -> list[str]:
    """What the compiler said about such words, a sentence each."""
    found = re.findall(r'([\w.]+):(\d+):\d+: error: attempt to use poisoned "(\w+)"', output)
    return list(dict.fromkeys(f"line {line} of {file} has `{word}`: {_WORDS[word]}"
                              for file, line, word in found if word in _WORDS))


def findings(symbols: str, sections: str, exports: Iterable[str], provided: Iterable[str],
             is_cuda: bool = False, on_gpu: bool = False) -> list[str]:
    """What is refused, a sentence each. `symbols` is the output of `nm -P`, `sections` that of
    `readelf -SW`; `exports` are the functions of the task, `provided` what the course offers.
    `on_gpu`: nvcc made the object, and a GPU runs its kernels."""
    exports, provided = set(exports), set(provided)
    found = []
    defined = set()
    for line in symbols.splitlines():
        if not re.fullmatch(r"\S+ [A-Za-z]( [0-9a-f]*){0,2} *", line):
            found.append("it has a symbol whose name has a space or another odd character")
            continue
        name, kind, *_ = line.split()
        if on_gpu and kind in ("U", "w", "v") and _ON_GPU.fullmatch(name):
            continue
        if kind in ("U", "w", "v") and not _is_allowed(name, provided):
            found.append(_refused(name))
        elif kind in ("i", "I"):
            found.append(f"`{name}` is chosen when the library is loaded (ifunc); "
                         "it has to be an ordinary function")
        elif kind.isupper() and kind not in ("U", ""):
            defined.add(name)
            if not _may_be_defined(name, exports):
                found.append(f"it defines `{name}`, which is not its own")
    found += [f"it does not define the function `{name}` of the task"
              for name in sorted(exports - defined)]
    data = 0
    for name, size in _sections(sections):
        if on_gpu and _SECTIONS_OF_GPU.fullmatch(name) and (
                name != ".init_array" or size == _REGISTERS):
            continue
        if _CONSTRUCTORS.fullmatch(name):
            found.append(f"it runs code before the first call (section {name}): an object outside "
                         "of a function has a constructor, or <iostream> is included")
        elif not _SECTIONS.fullmatch(name):
            found.append(f"it has a section {name}, which no function or constant needs")
        if is_cuda and name.startswith(".tbss"):  # __shared__ arrays, which each block finds empty
            continue
        if re.match(r"\.(data|bss|tdata|tbss)(?!\.rel\.ro)", name):
            data += size
    if data > MOST_DATA:
        found.append(f"its variables outside of functions take {data} bytes; "
                     f"{MOST_DATA} are the most")
    return list(dict.fromkeys(found))


def _is_allowed(name: str, provided: set[str]) -> bool:
    if name in provided or name in _PLAIN:
        return True
    return bool(_ALLOWED.fullmatch(name)) and not _REFUSED_OF_STD.search(name)


def _refused(name: str) -> str:
    for pattern, why in _REASONS:
        if re.fullmatch(pattern, name):
            return f"it uses `{name}`: {why}"
    return f"it uses `{name}`, which is not on the list of what a solution needs"


def _may_be_defined(name: str, exports: set[str]) -> bool:
    if name in exports:
        return True
    if name.startswith("DW.ref."):  # of the exceptions' tables
        return True
    if not name.startswith("_Z") or re.match(r"_Z(n[wa]|d[la])", name):
        return False
    # Templates of the standard library are instantiated here, weakly; see the version script.
    return True


def _sections(listing: str) -> Iterable[tuple[str, int]]:
    for line in listing.splitlines():
        if found := re.match(r" *\[ *\d+\] (\S*) +\w+ +[0-9a-f]+ [0-9a-f]+ ([0-9a-f]+) ", line):
            yield found[1], int(found[2], 16)
        elif re.match(r" *\[ *\d", line):  # a name that readelf's columns do not hold
            yield "with an odd name", 0
