"""What a student's object file may contain, and the words for what it may not.

The audit makes an attack loud; it is not what the grades stand on. A student's code runs in a
process of its own, which returns outputs and never a verdict.
"""

import functools
import re
from collections.abc import Iterable

from lab.backends import CHECKED, CPU, GPU

# What compiled arithmetic needs of the C library.
MATH = ("abs acos asin atan atan2 cbrt ceil copysign cos cosh erf exp exp2 exp10 expm1 fabs fdim "
         "floor fma fmax fmin fmod frexp hypot ilogb isinf isnan ldexp lgamma llrint llround log "
         "log10 log1p log2 logb lrint lround modf nearbyint nextafter pow remainder rint round "
         "scalbn sin sincos sinh sqrt tan tanh tgamma trunc").split()
_PLAIN = {
    *(name + suffix for name in MATH for suffix in ("", "f", "l")),
    "memcpy", "memmove", "memset", "memcmp", "memchr", "strlen", "strcmp", "bcmp", "abort",
    # to look at values while debugging: what is printed is not read
    "printf", "puts", "putchar", "snprintf", "vsnprintf", "sprintf", "fprintf", "vfprintf", "fputs",
    "fputc", "putc", "fwrite", "fflush", "stdout", "stderr",
    # of std::complex, std::shared_ptr, std::mutex, dynamic_cast, thread_local objects and sorting
    *(f"__{operation}{kind}c3" for operation in ("mul", "div") for kind in "sdx"),
    *(f"c{name}{suffix}" for name in ("abs", "arg", "exp", "log", "pow", "sqrt", "sin", "cos")
      for suffix in ("", "f", "l")),
    "__cpu_model", "__cpu_features2", "__cpu_indicator_init",  # __builtin_cpu_supports()
    "__libc_single_threaded", "pthread_mutex_lock", "pthread_mutex_unlock", "pthread_mutex_trylock",
    "__dynamic_cast", "__cxa_thread_atexit", "qsort", "bsearch",
    "_GLOBAL_OFFSET_TABLE_", "__dso_handle", "__stack_chk_fail", "__assert_fail", "_Unwind_Resume",
    "__gxx_personality_v0", "__tls_get_addr",
}
# What Debian's and Ubuntu's compilers may make of these; the emulator would not see them.
_ON_HOST = {f"__{name}_chk"
            for name in ("memcpy", "memmove", "memset", "printf", "snprintf", "sprintf", "fprintf",
                         "vfprintf", "vsnprintf")}
_ALLOWED = re.compile(
    r"__cxa_(throw|rethrow|begin_catch|end_catch|allocate_exception|free_exception|bad_cast"
    r"|guard_(acquire|release|abort)|throw_bad_array(_new)?_length|pure_virtual|atexit"
    r"|get_exception_ptr|init_primary_exception)"
    r"|__(add|sub|mul|div|fix|float|ext|trunc)\w*[sdtx]f\w*"  # arithmetic of the compiler's library
    r"|_Zn[wa]m\w*|_Zd[la]Pv\w*"                              # operator new and delete
    r"|_ZNK?[RO]?S[taosid]\w+|_ZSt\w+|_ZT[VIST]N?K?S[tosid]\w*|_ZTVN10__cxxabiv1\w+"
    r"|_ZN?K?9__gnu_cxx\w+"
    r"|_ZT[IV](PK?)?[a-z]")
_REFUSED_OF_STD = re.compile(
    r"St6thread|St7jthread|10filesystem|basic_[io]?fstream|basic_filebuf|basic_file|13random_device"
    r"|17_*async|18condition_variable|_M_start_thread|St3_V2|8ios_base4Init|6chrono")

# Sections that a compiler makes of functions and constants.
_SECTIONS = re.compile(
    r"\.(rela?\.)?(text|rodata|data|bss|tdata|tbss|eh_frame|gcc_except_table|tm_clone_table)"
    r"([._]\S*)?|\.(group|comment|note\S*|symtab|strtab|shstrtab|symtab_shndx|llvm_addrsig)"
    r"|\.gnu\.\S*|\.(rela?\.)?debug_\w+|")
_CONSTRUCTORS = re.compile(r"\.(rela?\.)?(preinit_array|init_array|fini_array|ctors|dtors|init"
                           r"|fini)(\.\S*)?")
# Bytes of all __shared__ arrays, those of each instance of a template together. What one thread
# block uses of them the emulator's checks count.
MOST_SHARED = 2 * 1024 * 1024
MOST_FINDINGS = 20  # that are worth the time
MOST_DATA = 64 * 1024  # bytes of variables that live as long as the program

# What CUDA code may use of the emulator and of common/cuda: what kernels and launches are made of.
_OF_CUDA = re.compile(
    r"flash_simt_\w+|_ZN5flash9grid_sizeEl|__ubsan_handle_(shift_out_of_bounds|float_cast_overflow)"
    r"|_ZN5flash6device(\d+)(allocate|free|check_launch|reserve_shared_memory|throw_cuda_error"
    r"|shared_memory_per_block|compute_capability|multiprocessors|synchronize|fill_bytes"
    r"|tensor_map)E\w*"
    r"|_ZN5flash4simt\d+(run|barrier|flash_simt_\w+|thread_number"
    r"|dynamic_shared_memory|read_from_absent_lane|nap|fence|misaligned|must_be_own"
    r"|wrong_width|async_\w+?"
    r"|add_products|tma_wait|wgmma\w*?|set_registers|bits_of_float16|float_of_float16)E\w*"
    r"|_ZN5flash4simt3ptx\w+"
    r"|_Z\d+cuda(GetLastError|PeekAtLastError|GetErrorString|GetErrorName|FuncSetAttribute"
    r"|FuncGetAttributes|GetDevice|DeviceGetAttribute|Memset|RuntimeGetVersion"
    r"|DeviceSynchronize|StreamSynchronize)\w+")

# What the compiler's checks, and those of the judge (assembly.py), call.
_CHECKS = re.compile(r"__tsan_\w+|__ubsan_handle_(out_of_bounds|type_mismatch_v1)"
                     r"|flash_simt_(touch|call|work|copy|other_stack)")
_REGISTERED = ".init_array.00099"  # the one function that tells the emulator of the checks

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

# Why a name is refused: the first pattern that fits.
_REASONS = (
    (r"dlopen|dlsym|dlmopen|dlvsym", "it loads other code at run time"),
    (r"system|popen|exec\w*|fork|vfork|clone\w*|posix_spawn\w*", "it starts another program"),
    (r"socket|connect|send\w*|recv\w*|getaddrinfo", "it uses the network"),
    (r"pthread_\w+|\w*St6thread\w*|\w*_M_start_thread\w*|GOMP_\w+|omp_\w+|\w*async\w*",
     "it starts threads, and this task is written without"),
    (r"malloc|calloc|realloc|free|aligned_alloc|posix_memalign|memalign|valloc",
     "it takes memory that nobody counts; use std::vector or Tensor, and in a kernel local arrays "
     "and shared memory"),
    (r"mmap\w*|munmap|mprotect|mremap|brk|sbrk|shm\w+|memfd_create",
     "it asks the system for memory; use std::vector or Tensor"),
    (r"f?open\w*|read|write|pread\w*|pwrite\w*|fread|fwrite|std(in|out|err)|f?getc|f?put[cs]"
     r"|fprintf|\w*fstream\w*|\w*filebuf\w*|\w*filesystem\w*|unlink|rename|stat\w*",
     "it works with files; printf may be used to look at values"),
    (r"_?_?exit|_Exit|quick_exit|atexit|raise|kill|signal|sigaction|longjmp|_setjmp|__sigsetjmp",
     "it ends the program, or catches its signals"),
    (r"\w*random_device\w*|\w*6chrono\w*|s?rand(om)?\w*|\w*rand48\w*|arc4random\w*|getrandom"
     r"|getentropy|times?|ftime|timespec_get\w*|\w*clock\w*|gettimeofday|getrusage|\w*sleep\w*",
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


# What a symbol is in a student's source, where it is no word of it.
_IN_SOURCE = (
    (r"\w*(St6thread|St7jthread|_M_start_thread|async|condition_variable)\w*",
     r"std::(?:j?thread|async|condition_variable\w*)"),
    (r"\w*(fstream|filebuf)\w*", r"std::[io]?fstream"), (r"\w*filesystem\w*", r"std::filesystem"),
    (r"\w*random_device\w*", r"std::random_device"),
    (r"\w*6chrono\w*", r"std::(?:chrono|this_thread)(?:::\w+)*"), (r"\w*8ios_base4Init\w*", r"<iostream>"),
    (r"GOMP_\w+|omp_\w+", r"#\s*pragma\s+omp"),
)


def in_source(name: str, source: str) -> str:
    """A symbol as it stands in the source, with its line; else the symbol."""
    words = next((words for symbol, words in _IN_SOURCE if re.fullmatch(symbol, name)),
                 rf"\b(?:std::)?{re.escape(name)}\b")
    code = _without_comments(source)
    if found := re.search(words, code):
        return f"`{found[0]}` in line {code.count(chr(10), 0, found.start()) + 1}"
    return f"`{name}`"


@functools.lru_cache(1)
def _without_comments(source: str) -> str:
    return re.sub("//.*", "", source)


def may_be_used_in_cuda(name: str) -> bool:
    """Of a symbol of the libraries of the emulator or of a GPU: whether student code may use it."""
    return bool(_OF_CUDA.fullmatch(name))


def findings(symbols: str, sections: str, exports: Iterable[str], provided: Iterable[str],
             backend: str = CPU, source: str = "") -> list[str]:
    """What is refused, a sentence each. `symbols` is the output of `nm -P`, `sections` that of
    `readelf -SW`; `exports` are the functions of the task, `provided` what the course offers to
    code that is compiled for this backend."""
    exports, provided, on_gpu = set(exports), set(provided), backend == GPU
    if backend in (CPU, GPU):
        provided |= _ON_HOST
    data = shared = 0
    found = []
    defined = set()
    for line in symbols.splitlines():
        if len(found) >= MOST_FINDINGS:
            return list(dict.fromkeys(found))
        if not re.fullmatch(r"\S+ [A-Za-z]( [0-9a-f]*){0,2} *", line):
            found.append("it has a symbol whose name has a space or another odd character")
            continue
        name, kind, *_ = line.split()
        if on_gpu and kind in ("U", "w", "v") and _ON_GPU.fullmatch(name):
            continue
        if backend == CHECKED and _CHECKS.fullmatch(name):
            continue
        if kind == "C":
            data += int(line.split()[-1], 16)
        if kind in ("U", "w", "v") and not _is_allowed(name, provided):
            found.append(_refused(name, in_source(name, source)))
        elif kind in ("i", "I"):
            found.append(f"`{name}` is chosen when the library is loaded (ifunc); "
                         "it has to be an ordinary function")
        elif kind.isupper() and kind not in ("U", ""):
            defined.add(name)
            if not _may_be_defined(name, exports):
                found.append(f"it defines `{name}`, which is not its own" +
                             "; leave out extern \"C\"" * name[0].isalpha())
    found += [f"it does not define the function `{name}` of the task"
              for name in sorted(exports - defined)]
    for name, size, flags in _sections(sections):
        if backend == CHECKED and name in (_REGISTERED, f".rela{_REGISTERED}") and (
                name != _REGISTERED or size == 8):
            continue
        if on_gpu and _SECTIONS_OF_GPU.fullmatch(name) and (
                name != ".init_array" or size == _REGISTERS):
            continue
        if _CONSTRUCTORS.fullmatch(name):
            found.append(f"it runs code before the first call (section {name}): an object outside "
                         "of a function has a constructor, or <iostream> is included")
        elif not _SECTIONS.fullmatch(name) and (name, size) != (".linker-options", 0):  # clang's
            found.append(f"it has a section {name}, which no function or constant needs")
        if backend != CPU and name.startswith(".tbss"):
            shared += size  # __shared__ arrays, which each block finds empty
            continue
        if "W" in flags and not re.match(r"\.data\.rel\.ro", name):
            data += size
    # With the checks the compiler keeps a record of each line; the other build has the variables.
    if data > MOST_DATA and backend != CHECKED:
        found.append(f"its variables outside of functions take {data} bytes; "
                     f"{MOST_DATA} are the most")
    if shared > MOST_SHARED:
        found.append(f"its __shared__ and thread_local variables take {shared} bytes; "
                     f"{MOST_SHARED} are the most")
    return list(dict.fromkeys(found))


def _is_allowed(name: str, provided: set[str]) -> bool:
    if name in provided or name in _PLAIN:
        return True
    return bool(_ALLOWED.fullmatch(name)) and not _REFUSED_OF_STD.search(name)


def _refused(name: str, words: str) -> str:
    for pattern, why in _REASONS:
        if re.fullmatch(pattern, name):
            return f"it uses {words}: {why}"
    return f"it uses {words}, which is not on the list of what a solution needs"


def _may_be_defined(name: str, exports: set[str]) -> bool:
    if name in exports or name in ("__powf", "__sincosf"):  # CUDA's; <math.h> makes them C functions
        return True
    if name.startswith("DW.ref.") or name == "__clang_call_terminate":  # of exceptions
        return True
    if not name.startswith("_Z") or re.match(r"_Z(n[wa]|d[la])", name):
        return False
    # Templates of the standard library are instantiated here, weakly; see the version script.
    return True


def _sections(listing: str) -> Iterable[tuple[str, int, str]]:
    """Name, bytes and flags of each."""
    for line in listing.splitlines():
        if found := re.match(r" *\[ *\d+\] (\S*) +[\w+]+ +[0-9a-f]+ [0-9a-f]+ ([0-9a-f]+) "
                             r"[0-9a-f]+ +([A-Za-z]*) ", line):
            yield found[1], int(found[2], 16), found[3]
        elif re.match(r" *\[ *\d", line):  # a name that readelf's columns do not hold
            yield "with an odd name", 0, ""
