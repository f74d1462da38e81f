"""What nvcc refuses of a .cu file and a C++ compiler takes: host code in kernels, and kernels' code
on the host. Read in the text, for machines without nvcc. And local variables that nobody set, and
the host's `thread_local`, which nvcc takes and the emulator does not.

It knows names, and no types, and says only what is sure. nvcc finds more.
"""

import itertools
import re
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab.submission import audit

_TOKEN = re.compile(
    r"""(?sx) //[^\n]* | /\*(?:.*?\*/|(?P<comment>.*))
    | (?:u8|[uUL])?R"(?P<raw>[^ ()\\\t\n]*)\((?:.*?\)(?P=raw)"\w*|(?P<open>.*))
    | (?:u8|[uUL])?"(?:\\.|[^"\\\n])*"\w* | (?:u8|[uUL])?'(?:\\.|[^'\\\n])*'\w*
    | \.?\d(?:'?[\w.]|(?<=[eEpP])[+-])* | (?P<word>[^\W\d]\w*) | ::|->|[=!<>]=|\S""")
_CONDITIONS = re.compile(r"\s*#\s*(if|ifn?def|elif|elifn?def|else|endif|define|undef)\b")
# What nvcc defines while it reads code of the GPU.
_OF_NVCC = "#define __CUDACC__ 1\n#define __NVCC__ 1\n#define __CUDA_ARCH__ 900\n"
_CLASS = {"class", "struct", "union", "enum"}
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_DEVICE = {"__device__", "__global__"}
_WITH_ARGUMENTS = {"__launch_bounds__", "__maxnreg__", "__cluster_dims__", "__attribute__",
                   "__align__", "alignas", "decltype", "noexcept", "requires", "explicit", "sizeof"}
_REFUSED = ": nvcc refuses there what is not `__device__`"
_OF_THE_FILE = {"__device__", "__constant__", "__managed__"}
_BUILT_IN = {"threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize"}
_COMPUTED = {"constexpr", "using", "typename", "concept"}
# In front of a value. Any other word in front of a name declares it.
_BEFORE_A_VALUE = {"return", "else", "do", "case", "throw", "new", "delete", "goto", "and", "or",
                   "not"}
# What a kernel may call of the standard library: CUDA has its arithmetic, and names of types.
_STD = re.compile(
    "(" + "|".join(audit.MATH) + r"|l?labs|ilogb|isfinite|isnormal|signbit|move|forward|declval"
    r"|(true|false)_type|integral_constant|initializer_list|\w+_t|is_\w+|printf|mem(cpy|set))[fl]?")
# Those that a GPU has of float and of double alone: for others <cmath> has functions of the host.
_OF_ONE_TYPE = re.compile("exp|exp2|expm1|log|log2|log10|log1p|sqrt|cbrt|sin|cos|tan|sinh|cosh|tanh"
                          "|erf|erfc|fmin|fmax|fmod|fdim|fma|atan2|hypot|remainder")
_INTEGERS = {"int", "unsigned", "long", "short", "char", "bool", "size_t", "Index", "int64_t"}
_MATH = re.compile(f"({'|'.join(audit.MATH)})[fl]?")
_STD_OBJECTS = re.compile(r"c(out|err|in)|endl|string(_view)?|vector|map|set|unordered_\w+|deque"
                          r"|list|any|function|thread|mutex|lock_guard|atomic\w*|mt19937\w*|array"
                          r"|bitset|complex|optional|span|(unique|shared)_ptr")
_C = re.compile(r"s?rand|time|_?exit|abort|f(printf|puts|write|flush|open|close)|puts|putchar"
                r"|sn?printf|getenv|system|qsort|ato[ifl]|str(n?cmp|n?cpy|n?cat|chr|str)|calloc"
                r"|realloc|(__builtin_)?mem(move|cmp|chr)|u?sleep"
                r"|__builtin_(ctz|parity|clrsb|bswap|prefetch|trap|\w+_overflow)\w*")
_WORDS = {"throw": "exceptions", "try": "exceptions", "typeid": "types at run time",
          "dynamic_cast": "types at run time", "thread_local": "variables of the host's threads"}


@dataclass(frozen=True)
class _Token:
    text: str
    line: int
    is_word: bool


@dataclass
class _Function:
    specifiers: frozenset[str]
    tokens: list[_Token]  # parameters and body
    in_class: bool


@dataclass
class _File:
    functions: list[_Function] = field(default_factory=list)
    # Of each name the specifiers of its declarations.
    names: dict[str, list[frozenset[str]]] = field(default_factory=dict)
    methods: dict[str, list[frozenset[str]]] = field(default_factory=dict)
    variables: dict[str, list[frozenset[str]]] = field(default_factory=dict)
    members: dict[str, list[frozenset[str]]] = field(default_factory=dict)  # static ones
    computed: list[_Token] = field(default_factory=list)  # variables of the GPU, by functions
    # Of "+" and others the operators outside of classes: the words of their types, the specifiers.
    operators: dict[str, list[tuple[set[str], frozenset[str]]]] = field(default_factory=dict)


class _Unended(Exception):
    """What the compiler does not read, as behind #if 0: to read on behind each takes for ever."""


Preprocess = Callable[[str], str]  # a text of directives and numbers; "" where that failed


def at_home(text: str) -> str:
    """For text that nobody has to be protected from."""
    compiler = shutil.which("c++") or shutil.which("g++") or "c++"
    try:
        ended = subprocess.run([compiler, "-E", "-P", "-std=c++20", "-x", "c++", "-"], input=text,
                               capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ended.stdout if ended.returncode == 0 else ""


def findings(text: str, course: Path, preprocess: Preprocess = at_home) -> list[str]:
    """A sentence each. `course` is the folder of the headers that the file includes."""
    try:
        return _findings(text, list(_included(text, course, {}).values()), preprocess)
    except _Unended as unended:
        return [str(unended)]
    except (IndexError, RuntimeError):  # no C++; RuntimeError is also what is nested too deeply
        return []


def _findings(text: str, headers: Sequence[str], preprocess: Preprocess) -> list[str]:
    *read, own_text = _without_conditions([*headers, text], preprocess)
    macros = dict(found for each in (*headers, text) for found in _macros(each))
    own = _read(own_text, macros)
    known = _File()
    gpu_has = {"free", "max", "size" if "cooperative_groups" in text else ""}
    for file in (own, *(_read(header, macros) for header in read)):
        for kind in ("names", "methods"):
            for name, declared in getattr(file, kind).items():
                if file is own or not (_STD.fullmatch(name) or name in gpu_has):
                    getattr(known, kind).setdefault(name, []).extend(declared)
    found = [line for function in own.functions for line in _in_function(function, own, known)]
    found += [f"line {each.line} computes `{each.text}`, a variable of the GPU, with a function: "
              "nvcc refuses that; write the number" for each in own.computed]
    return list(dict.fromkeys(found))


def _included(text: str, course: Path, known: dict[str, str]) -> dict[str, str]:
    for name in re.findall(r'(?m)^[ \t]*#[ \t]*include[ \t]*"([\w./+-]+)"', text):
        if name not in known and (course / name).is_file():
            known[name] = (course / name).read_text(errors="replace")
            _included(known[name], course, known)
    return known


def _without_conditions(texts: Sequence[str], preprocess: Preprocess) -> list[str]:
    """Without directives and what they leave out for nvcc, as the compiler's own preprocessor says.
    It reads a number in the place of all that stands between two of them."""
    pieces: list[list[str]] = []  # of each text, in turns with its directives
    asked = [_OF_NVCC]
    for text in texts:
        lines = re.sub(r"\\\n", lambda _: "\x00", text).split("\n")
        pieces.append([])
        for is_condition, group in itertools.groupby(lines, lambda one: bool(
                _CONDITIONS.match(one))):
            plain = list(group)
            pieces[-1].append("\n".join(
                "\x00" * line.count("\x00") if is_condition or re.match(r"\s*#", line) else line
                for line in plain))
            asked += ([line.replace("\x00", " ") for line in plain] if is_condition
                      else [f"{len(pieces) - 1} {len(pieces[-1])}"])
    answer = preprocess("\n".join(asked) + "\n")
    kept = set(re.findall(r"(?m)^(\d+ \d+)$", answer))
    return ["\n".join(
        piece if not kept or f"{of} {n}" in kept else re.sub("[^\n\x00]", "", piece)
        for n, piece in enumerate(each, 1)).replace("\x00", "\n") for of, each in enumerate(pieces)]


def _macros(text: str) -> Iterator[tuple[str, list[str]]]:
    """Those that stand for CUDA's words."""
    for name, words in re.findall(r"(?m)^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(.*)", text):
        if found := re.findall(r"__(?:device|global|host|constant)__", words):
            yield name, found


def _in_function(function: _Function, own: _File, known: _File) -> Iterator[str]:
    on_host = not function.specifiers & _DEVICE
    if not on_host and "__host__" in function.specifiers:
        return  # nvcc only warns
    tokens = function.tokens
    if "__global__" in function.specifiers:
        yield from _of_a_kernel(function)
    declared, types = set(_declared(tokens)), _types(tokens)
    at_run_time = _BUILT_IN.union(_declared(tokens[:_behind(tokens, 0)]))
    computed = False  # the statement is a constant of the compiler
    for n, token in enumerate(tokens):
        computed = (computed and token.text not in ";{}") or token.text in _COMPUTED
        word, before, place = token.text, tokens[n - 1].text if n else "", f"line {token.line}"
        rest = tokens[n + 1:n + 60]
        if not token.is_word:
            operands = {types.get(before), types.get(rest[0].text) if rest else None} - {None}
            symbol = word + "=" * bool(rest and rest[0].text == "=")
            if not on_host and _all([words for of, words in own.operators.get(symbol, ())
                                     if of & operands], _is_host):
                yield f"{place} uses an operator `{symbol}` in a kernel{_REFUSED}"
            continue
        is_called = _is_called(rest)
        is_free = before not in (".", "->", "::") and word not in declared
        if on_host:
            if is_called and is_free and _all(own.names.get(word), _is_device):
                yield (f"{place} calls `{word}()` on the host, and it is compiled for the GPU alone"
                       + ": a kernel needs launch()" * ("__global__" in own.names[word][0]))
            elif word == "thread_local":
                yield (f"{place} has `thread_local`: the emulator has shared memory there, and a "
                       "launch overwrites it; make the variable static, or a local one")
            elif word == "launch" and is_called and len(rest) > 3 and rest[2].text == "," and _all(
                    own.names.get(rest[3].text), lambda words: "__global__" not in words):
                yield (f"{place} launches `{rest[3].text}()`, which is not `__global__`, and so no "
                       "kernel")
        elif word == "__shared__":
            if name := _with_a_value(rest):
                yield (f"{place} gives the shared variable `{name}` a value where it is declared: "
                       "nvcc refuses that; a thread has to write it")
        elif word == "static" and (name := _with_a_value(rest)) and _needs(rest, at_run_time):
            yield (f"{place} gives the static variable `{name}` a value that the compiler does not "
                   "know: nvcc refuses that; a thread has to write it")
        elif before == "&" and not _declares(tokens, n) and (
                word in _BUILT_IN or is_free and _all(own.variables.get(word), _is_of_host)):
            yield f"{place} takes the address of `{word}` in a kernel, and on a GPU it has none"
        elif word in _OF_THE_FILE and (what := _misplaced(tokens, n)):
            yield f"{place} has `{word}` in a function: {what}"
        elif word == "new" and rest and rest[0].text != "(" and before != "operator":
            yield (f"{place} takes memory by `new` in a kernel, which nobody counts; use local arrays "
                   "and shared memory")
        elif word in _WORDS and before not in (".", "->"):
            yield f"{place} has `{word}` in a kernel: a GPU has no {_WORDS[word]}"
        elif (is_free or before == "::") and is_called and word not in own.names and \
                _OF_ONE_TYPE.fullmatch(word) and (given := _mixed(rest, types)):
            yield (f"{place} calls `{word}()` of {given} in a kernel, and nvcc has it for float "
                   "and for double")
        elif before == "::" and tokens[n - 2].text == "std":
            if _STD_OBJECTS.fullmatch(word) or is_called and not _STD.fullmatch(word):
                yield f"{place} uses `std::{word}` in a kernel{_REFUSED}"
            elif word == "numeric_limits" and (found := _limit(rest)):
                yield (f"{place} calls `std::numeric_limits<...>::{found}()` in a kernel{_REFUSED}"
                       "; CUDA has INFINITY, NAN, and the macros of <cfloat> and <climits>")
        elif before in (".", "->"):
            if is_called and word not in known.names and _all(known.methods.get(word), _is_host):
                yield f"{place} calls `{word}()` in a kernel{_REFUSED}"
        elif is_called and is_free and _all(own.names.get(word), _is_kernel):
            yield f"{place} calls `{word}()` in a kernel, and only the host can launch a kernel"
        elif is_free and _names_object(rest) and _all(
                known.methods.get(word),
                lambda words, word=word: words <= {word, "explicit", "inline", "constexpr"}):
            yield f"{place} calls `{word}()`, a constructor, in a kernel{_REFUSED}"
        elif is_free and before in ("=", "&") and rest[0].text in ";,)" and _all(
                own.names.get(word), _is_host):
            yield f"{place} takes `{word}()` in a kernel{_REFUSED}"
        elif is_called and is_free and (_all(known.names.get(word), _is_host) or
                                        _C.fullmatch(word) and word not in known.names):
            yield f"{place} calls `{word}()` in a kernel{_REFUSED}"
        elif not (is_called or computed or _is_measured(tokens, n)) and (
                is_free and _all(own.variables.get(word), _is_host_variable) or
                before == "::" and _all(own.members.get(word), _is_host_variable)):
            yield (f"{place} uses `{word}` in a kernel, a variable of the host: __constant__ or "
                   "__device__ makes it one of the GPU, and constexpr a number (not an array)")


def _types(tokens: Sequence[_Token]) -> dict[str, str]:
    """Of parameters and local variables, or of their elements; of those whose type is one word."""
    found: dict[str, set[str]] = {}
    for n, token in enumerate(tokens):
        at = n - 1
        while at > 0 and tokens[at].text in ("*", "&", "const", "volatile", "__restrict__"):
            at -= 1
        if token.is_word and at >= 0 and tokens[at].is_word and \
                tokens[at].text not in _BEFORE_A_VALUE and \
                tokens[at - 1].text in ("(", ",", ";", "{", "}", "const", "unsigned", "constexpr"):
            found.setdefault(token.text, set()).add(tokens[at].text)
    return {name: types.pop() for name, types in found.items() if len(types) == 1}


def _mixed(rest: Sequence[_Token], types: Mapping[str, str]) -> str:
    """What the arguments are that follow, if they are known to be of more than one type or of an
    integer one."""
    end, begin, kinds = _behind(rest, 0), 1, set()
    for n in range(1, end):
        if n == end - 1 or rest[n].text == "," and _depth(rest[1:n]) == 0:
            kinds.add(_kind([token.text for token in rest[begin:n]], types))
            begin = n + 1
    if "an integer" in kinds:
        return "an integer"
    return "a float and a double" if {"float", "double"} <= kinds else ""


def _depth(tokens: Sequence[_Token]) -> int:
    return sum((token.text in _CLOSING) - (token.text in _CLOSING.values()) for token in tokens)


def _kind(words: list[str], types: Mapping[str, str]) -> str:
    if words[:1] == ["-"]:
        words = words[1:]
    if len(words) == 1 and re.match(r"\.?\d", words[0]):
        is_whole = re.fullmatch(r"0x[\da-f']+u?l*|[\d']+u?l*", words[0], re.IGNORECASE)
        return "an integer" if is_whole else "float" if words[0][-1] in "fF" else "double"
    is_element = len(words) > 3 and words[1] == "[" and words.index("]") == len(words) - 1
    type = types.get(words[0], "") if len(words) == 1 or is_element else ""
    return "an integer" if type in _INTEGERS else type


def _of_a_kernel(function: _Function) -> Iterator[str]:
    place = f"line {function.tokens[0].line}"
    if function.in_class:
        yield f"{place} declares a kernel in a class: nvcc takes functions only"
    if not function.specifiers & {"void", "auto"}:
        yield f"{place} declares a kernel that returns a value: a kernel returns void"


def _misplaced(tokens: Sequence[_Token], n: int) -> str:
    """What nvcc says to one of CUDA's words, if it belongs to a lambda or to a local variable."""
    if n and tokens[n - 1].text in ("]", ")"):
        return "a lambda of a kernel needs no such word, and nvcc refuses it"
    begin = next((at for at in range(n, 0, -1) if tokens[at - 1].text in ";{}"), 0)
    end = next((at for at in range(n, len(tokens)) if tokens[at].text in "(=;[{"), n)
    words = {token.text for token in tokens[begin:end]}
    if tokens[end].text == "(" or words & {"static", "__shared__", "operator"}:
        return ""
    return "such a variable stands outside of functions"


def _names_object(rest: Sequence[_Token]) -> bool:
    """Whether an object is made here, of the class whose name stands before."""
    after = rest[1:2] if rest and rest[0].is_word else rest[:1]
    return bool(after) and (after[0].text in ("(", "{") or
                            rest[0].is_word and after[0].text in (";", "="))


def _is_measured(tokens: Sequence[_Token], n: int) -> bool:
    """Whether the value is not asked for: by sizeof, or since it is a number in brackets that the
    compiler computes, as the length of an array."""
    before = [token.text for token in tokens[max(n - 2, 0):n]]
    return "sizeof" in before or before[-1:] == ["["]


def _needs(rest: Sequence[_Token], at_run_time: Collection[str]) -> bool:
    """Whether the declaration that follows computes its value from such a name, or by a function
    of <cmath>."""
    words = [token.text for token in itertools.takewhile(lambda token: token.text != ";", rest)]
    value = words[words.index("="):] if "=" in words and not words.count("__shared__") else []
    return any(word in at_run_time or _MATH.fullmatch(word) for word in value)


def _declares(tokens: Sequence[_Token], n: int) -> bool:
    """Whether the & before the name at n belongs to a type."""
    before, after = tokens[n - 2], "".join(token.text for token in tokens[n + 1:n + 3])
    return before.text in (">", "&", "*", ")") or after == ")[" or \
        before.is_word and before.text not in _BEFORE_A_VALUE


def _declared(tokens: Sequence[_Token]) -> Iterator[str]:
    """The names of parameters and local variables."""
    for n in range(1, len(tokens)):
        before, token = tokens[n - 1], tokens[n]
        is_called = n + 1 < len(tokens) and tokens[n + 1].text == "("
        if token.is_word and (before.is_word and before.text not in _BEFORE_A_VALUE
                              or before.text in ("*", ">") and not is_called
                              or before.text == "&" and not is_called and _declares(tokens, n)):
            yield token.text
        elif before.text == "auto" and token.text == "[" or token.text == "[" and \
                before.text == "&" and tokens[n - 2].text == "auto":
            yield from (inner.text for inner in tokens[n:_behind(tokens, n)] if inner.is_word)


def _all(declared: Sequence[frozenset[str]] | None,
         is_so: Callable[[frozenset[str]], bool]) -> bool:
    return bool(declared) and all(map(is_so, declared))


def _is_host(words: frozenset[str]) -> bool:
    return not words & (_DEVICE | {"consteval", "default"})


def _is_kernel(words: frozenset[str]) -> bool:
    return "__global__" in words


def _is_device(words: frozenset[str]) -> bool:
    return bool(words & _DEVICE) and not words & {"__host__", "constexpr"}


def _is_of_host(words: frozenset[str]) -> bool:
    return not words & {"__device__", "__constant__", "__managed__", "__shared__", "extern"}


def _is_host_variable(words: frozenset[str]) -> bool:
    """Of a constant nvcc takes the value, unless it is an array, or a function computes it."""
    is_value = "constexpr" in words or "const" in words and "(" not in words
    return _is_of_host(words) and not (is_value and "[" not in words)


def _is_called(rest: Sequence[_Token]) -> bool:
    """Whether arguments follow, perhaps behind those of a template."""
    if rest and rest[0].text == "<":
        depth = 0
        for n, token in enumerate(rest):
            depth += (token.text == "<") - (token.text == ">")
            if token.text in (";", "{", "}", "&", "|"):
                return False
            if not depth:
                return n + 1 < len(rest) and rest[n + 1].text == "("
        return False
    return bool(rest) and rest[0].text == "("


def _with_a_value(rest: Sequence[_Token]) -> str:
    """The name of a variable that is declared here, if it has a value."""
    name = ""
    for n, token in enumerate(rest):
        if token.text in ("=", "{") and not {"struct", "union"} & {one.text for one in rest[:n]}:
            return name
        if token.text in (";", "("):
            break
        name = token.text if token.is_word and rest[n + 1:n + 2] and rest[n + 1].text in (
            "[", "=", "{", ";", ",") else name
    return ""


def _limit(rest: Sequence[_Token]) -> str:
    words = [token.text for token in rest[:12]]
    return words[words.index("::") + 1] if "::" in words and ">" in words[:words.index("::")] \
        else ""


# ---- reading -------------------------------------------------------------------------------------

def _read(text: str, macros: Mapping[str, list[str]]) -> _File:
    file = _File()
    _scope(_tokens(text, macros), 0, file, False)
    return file


def _tokens(text: str, macros: Mapping[str, list[str]]) -> list[_Token]:
    """Without comments; a macro that stands for one of CUDA's words is those."""
    found, line, last = [], 1, 0
    for match in _TOKEN.finditer(text):
        line += text.count("\n", last, match.start())
        last = match.start()
        if match["comment"] is not None or match["open"] is not None:
            raise _Unended(f"line {line} begins a comment or a text that nothing ends")
        if match[0].startswith(("//", "/*")):
            continue
        for word in macros.get(match[0]) or [match[0]]:
            found.append(_Token(word, line, bool(match["word"])))
    return found


def _behind(tokens: Sequence[_Token], n: int) -> int:
    """The place behind the bracket that closes the one at n."""
    closing, depth, opening = _CLOSING[tokens[n].text], 0, tokens[n].text
    while n < len(tokens):
        depth += (tokens[n].text == opening) - (tokens[n].text == closing)
        n += 1
        if not depth:
            break
    return n


def _scope(tokens: Sequence[_Token], n: int, file: _File, in_class: bool) -> int:
    """Reads declarations from n on, until the scope ends."""
    while n < len(tokens) and tokens[n].text != "}":
        n = _declaration(tokens, n, file, in_class)
    return n + 1


def _declaration(tokens: Sequence[_Token], n: int, file: _File, in_class: bool) -> int:
    """Reads one from n on; the place behind it."""
    if in_class and n + 1 < len(tokens) and tokens[n + 1].text == ":":  # public:
        return n + 2
    if tokens[n].text == "template" and tokens[n + 1].text == "<":
        return _declaration(tokens, _behind_angles(tokens, n + 1), file, in_class)
    first, name, arguments = n, None, None  # the places of two of its tokens
    while n < len(tokens) and tokens[n].text not in (";", "}"):
        text = tokens[n].text
        words = {token.text for token in tokens[first:n]} if text == "{" else set()
        if text == "operator" and not arguments:
            name, n = n, n + 1
            while n + 2 < len(tokens) and (tokens[n].text != "(" or tokens[n + 2].text == "("):
                n += 1
            arguments = n
        elif text == "=":
            name = n - 1 if name is None else name
        elif text == ":" and arguments:  # what a constructor sets
            while n < len(tokens) and (tokens[n].text != "{" or tokens[n - 1].is_word):
                n = _behind(tokens, n) if tokens[n].text in _CLOSING else n + 1
            continue
        elif text == "(" and name is None and tokens[n - 1].is_word and \
                tokens[n - 1].text not in _WITH_ARGUMENTS:
            name, arguments = n - 1, n
        elif text == "[" and n > first and tokens[n - 1].is_word:
            name = n - 1 if name is None else name
        elif text == "{" and name is None and words & {"namespace", "extern", *_CLASS}:
            n = _behind(tokens, n) if "enum" in words else \
                _scope(tokens, n + 1, file, bool(words & _CLASS))
            if words & {"namespace", "extern"}:
                return n
            continue
        elif text == "{" and arguments:
            end = _behind(tokens, n)
            specifiers = frozenset(token.text for token in tokens[first:arguments])
            _enter(file, tokens, first, name, in_class, specifiers)
            file.functions.append(_Function(specifiers, list(tokens[arguments:end]), in_class))
            return end
        elif text == "{":
            name = n - 1 if name is None else name
        n = _behind(tokens, n) if tokens[n].text in _CLOSING else n + 1
    words = {token.text for token in tokens[first:n]}
    if n > first and not words & {"using", "typedef", "friend", "static_assert", "namespace"}:
        name = n - 1 if name is None else name
        if arguments:  # with "default" in `= default`
            more = {token.text for token in tokens[arguments:n]} & {"default"}
            specifiers = frozenset(token.text for token in tokens[first:arguments]) | more
            _enter(file, tokens, first, name, in_class, specifiers)
        elif tokens[name].is_word and not words & _CLASS and (not in_class or "static" in words):
            array = {"["} if name + 1 < n and tokens[name + 1].text == "[" else set()
            computed = {"("} if any(
                one.is_word and _MATH.fullmatch(one.text) and after.text == "("
                for one, after in zip(tokens[name:n], tokens[name + 1:n])) else set()
            if computed and words & _OF_THE_FILE:
                file.computed.append(tokens[name])
            kind = file.members if in_class else file.variables
            kind.setdefault(tokens[name].text, []).append(
                frozenset(token.text for token in tokens[first:name]) | array | computed)
    return n + 1


def _enter(file: _File, tokens: Sequence[_Token], first: int, name: int, in_class: bool,
           specifiers: frozenset[str]) -> None:
    if name > first and tokens[name - 1].text == "::":
        return  # a method, whose class has it already
    if tokens[name].text == "operator" and not in_class:
        begin = next(n for n in range(name + 1, len(tokens)) if tokens[n].text == "(")
        words = {token.text for token in tokens[begin:_behind(tokens, begin)] if token.is_word}
        symbol = "".join(token.text for token in tokens[name + 1:begin])
        file.operators.setdefault(symbol, []).append((words - {"const"}, specifiers))
    kind = file.methods if in_class else file.names
    kind.setdefault(tokens[name].text, []).append(specifiers)


def _behind_angles(tokens: Sequence[_Token], n: int) -> int:
    depth = 0
    while n < len(tokens):
        if tokens[n].text in _CLOSING:
            n = _behind(tokens, n)
            continue
        depth += (tokens[n].text == "<") - (tokens[n].text == ">")
        n += 1
        if not depth:
            break
    return n


# ---- variables that nobody set -------------------------------------------------------------------

_TAKING = ("+=", "-=", "*=", "/=", "++", "--")
_NUMBERS = re.compile(r"float[1-4]?|double[1-4]?|u?int[1-4]?|unsigned|long|short|char|bool|half2?|T"
                      r"|__half2?|__nv_bfloat162?|Index|size_t|u?int\d+_t|BFloat16|Half")


def unset(text: str) -> dict[int, str]:
    """The lines of a kernel that take the value of a local variable which nobody has set."""
    plain = set(re.findall(r"\bstruct\s+(\w+)\s*\{[^{}()=]*\}", text))
    own, = _without_conditions([text], at_home)
    return {token.line: f"`{token.text}` is used before anything is assigned to it: it begins with "
                        "any number, here with -1.69e38"
            for function in _read(own, dict(_macros(text))).functions
            if function.specifiers & _DEVICE for token in _unset(function.tokens, plain)}


def _unset(tokens: Sequence[_Token], plain: Collection[str]) -> Iterator[_Token]:
    """`plain`: structures whose members nothing sets."""
    for n, token in enumerate(tokens):
        if not (_NUMBERS.fullmatch(token.text) or token.text in plain) or n and \
                tokens[n - 1].text not in (";", "{", "}", "unsigned", "long"):
            continue
        while n + 1 < len(tokens) and tokens[n + 1].is_word:  # float a[2], b;
            n = at = n + 1
            while n + 1 < len(tokens) and tokens[n + 1].text == "[":
                n = _behind(tokens, n + 1) - 1
            n += 1
            if n < len(tokens) and tokens[n].text in (";", ","):
                if (use := _first_use(tokens, n, tokens[at].text)) is not None:
                    yield use
            if n >= len(tokens) or tokens[n].text != ",":
                break


def _first_use(tokens: Sequence[_Token], begin: int, name: str) -> _Token | None:
    """Where it takes the value; in a lambda, if what comes next is a call of that."""
    n = next((at for at in range(begin, len(tokens)) if tokens[at].text == name), len(tokens))
    if n + 1 >= len(tokens) or tokens[n - 1].text not in (";", "{", "}", ")", "else"):
        return None
    open_at = [at for at in range(begin, n) if tokens[at].text == "{" and _behind(tokens, at) > n]
    for at in open_at:
        if _is_lambda(tokens, at) and not _is_called_next(tokens, at, name):
            return None
    use, n = tokens[n], n + 1
    while tokens[n].text in ("[", "."):
        n = _behind(tokens, n) if tokens[n].text == "[" else n + 2
    rest = list(itertools.takewhile(lambda token: token.text != ";", tokens[n:n + 60]))
    again = any(token.text == name and before.text not in (".", "->")
                for before, token in zip(rest, rest[1:]))
    operator = "".join(token.text for token in rest[:2])
    return use if operator in _TAKING or operator[:1] == "=" and again else None


def _is_called_next(tokens: Sequence[_Token], n: int, name: str) -> bool:
    """Whether behind `auto CALL = [&] {`, with its braces at n, CALL( comes before `name`."""
    begin = next((at for at in range(n, 1, -1) if tokens[at].text in ("auto", ";")), n)
    call = tokens[begin + 1].text
    after = next((token for token in tokens[_behind(tokens, n):] if token.text in (call, name)),
                 None)
    return tokens[begin].text == "auto" and after is not None and after.text == call


def _is_lambda(tokens: Sequence[_Token], n: int) -> bool:
    """Whether the braces that open here are the body of one."""
    depth = 0
    for at in range(n - 1, max(n - 40, 0), -1):
        text = tokens[at].text
        depth += (text == ")") - (text == "(")
        if not depth and text in ("]", ";", "{", "}"):
            return text == "]"
    return False
