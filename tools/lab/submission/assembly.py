"""The compiler's assembly of a student's file for the emulator's checks: puts in the calls that the
compiler's own instrumentation lacks (emulator/check/judged_code.cpp has what they call), and counts
the operations of each thread.

The compiler tells the checks of most accesses to memory, but not of structures that are passed or
returned by value, nor of vector instructions. Here an access counts as told of when a call of
__tsan_read or __tsan_write before it, in the same piece of straight code, had its address. x86-64
only; elsewhere the text stays as it is.
"""

import functools
import platform
import re
from collections import deque
from collections.abc import Iterator

from lab.submission import audit

IS_KNOWN = platform.machine() in ("x86_64", "AMD64")
IS_WRITE = 1 << 30
# What moves no memory, or only the stack's.
_NO_ACCESS = re.compile(r"lea[lqw]?|v?nop\w*|prefetch\w*|endbr64|ret|leave|call|j\w+|pop\w?")
_ONLY_READS = re.compile(r"v?(u?comis[sd]|cmp[bwlq]|test[bwlq]|push\w?|p?test\w*|fld\w*|fild\w*"
                         r"|f(add|sub|mul|div)\w*|fldcw|(i?mul|i?div)[bwlq]|ldmxcsr|bt[wlq]?)")
# Instructions that plain code has no use for, and whose accesses their operands do not tell.
_ODD = re.compile(r"v?p?(gather|scatter|maskmov|compress|expand|conflict)\w*|v?movnt\w*"
                  r"|maskmovdqu|x(save|rstor)\w*|fx(save|rstor)\w*|syscall|sysenter|int\d?"
                  r"|in|out|ins\w|outs\w|cmps[bwlq]|scas[bwlq]|lods[bwlq]|xlat\w*|clflush\w*|lahf"
                  r"|enqcmd\w*|movdir\w*|tile\w+|rd(tscp?|pmc|[fg]sbase)|wr[fg]sbase"
                  r"|cl(zero|demote)|x(begin|end|abort|test)|cpuid")
# A thread's work is arithmetic, on any kind of number. What moves values or decides is none of it: a
# lane that only hands its values to another one does as much of that.
_NO_WORK = re.compile(r"(v?k?|c)mov\w*|lea\w|push\w?|pop\w?|ret|leave|j\w+|call|cmp\w|test\w"
                      r"|set\w+|v?nop\w*|endbr64|clt[dq]|cqto|cwtl")
_WORK_OF_A_CALL = 8  # of a function of the C library
_WAITS = re.compile(r"_Z|__(tsan|ubsan|cxa|assert|stack|tls)|flash_|mem(cpy|set|move)")
_SUFFIX = {"b": 1, "w": 2, "l": 4, "q": 8}
_REGISTER = re.compile(r"%(r?(?P<old>[abcd]x|[sd]i|[sb]p)|e(?P<e>[abcd]x|[sd]i|[sb]p)"
                       r"|(?P<byte>[abcd])[lh]|(?P<index>[sd]i|[sb]p)l|r(?P<new>\d+)[dwb]?)$")
_MEMORY = re.compile(r"(?P<segment>%[fg]s:)?(?P<offset>[^(),%]*)"
                     r"(\((?P<base>%\w+)?(,(?P<index>%\w+)(,(?P<scale>\d))?)?\))?$")
# Functions of the emulator's headers, which tell the checks themselves what they do.
# Not operator(), which may be called with a type of the file.
_EMULATOR = re.compile(r"(?!_ZNK5flash4simt\w+Ecl)"
                       r"_Z[ZNKL]*(5flash4simt|6nvcuda4wmma11simt_detail)")
# It combines the values of lanes unseen, and with a type of the file would run its code so.
_OF_OWN_TYPES = re.compile(r"_ZN5flash4simt13combine_lanesI(?!(?:[a-z]|6__half|7__half2"
                           r"|13__nv_bfloat16|14__nv_bfloat162)NS0_\d)")
_MOST_TERMS, _MOST_SLOTS = 8, 256  # that are remembered: no file makes this slow
_STACK = 1 << 16  # bytes; the stack of another thread is four times as far away
_SPOILT = ("ax", "cx", "dx", "si", "di", "8", "9", "10", "11")  # by a call


class Odd(Exception):
    """What no kernel of the course needs, and whose accesses to memory the checks would not see."""


def _split(operands: str) -> list[str]:
    """At the commas outside of parentheses."""
    return [part.strip() for part in re.split(r",(?![^(]*\))", operands)] if operands else []


@functools.lru_cache(256)
def _whole(register: str) -> str:
    """The name of the 64 bits that it is part of, "" for others."""
    found = _REGISTER.match(register)
    return next(filter(None, found.group("old", "e", "index", "new")), "") or (
        found["byte"] + "x") if found else ""


# External functions that kernels may call: CUDA's, and arithmetic. Those that access memory tell
# the checks (emulator/check/tsan_callbacks.cpp).
_FOR_KERNELS = re.compile(
    r"__tsan_\w+|__ubsan_\w+|_ZN5flash4simt\w+|flash_simt_\w+|_ZT[VIST]\w+|mem(cpy|move|set)"
    r"|printf|puts|putchar|abort|__assert_fail|__stack_chk_fail|__tls_get_addr"
    r"|_GLOBAL_OFFSET_TABLE_|__dso_handle|_Unwind_Resume|__gxx_personality_v0|__cxa_\w+"
    r"|_ZSt9terminatev|_ZSt7nothrow"
    r"|__(add|sub|mul|div|fix|float|ext|trunc)\w*[sdtx]f\w*"
    r"|(modf|frexp|sincos)f?|(?!modf|frexp|sincos)(" + "|".join(audit.MATH) + r")[fl]?")


def stubs(text: str) -> tuple[str, list[str]]:
    """More assembly, which stands before each external function that is the host's, so that a
    kernel's call is found; and their names. What is called by a pointer flash_simt_call() sees."""
    called = set(re.findall(r"(?m)^\t(?:call|jmp)\t([\w.]+)@PLT$", text)) - set(
        re.findall(r"(?m)^([\w.]+):", text))
    names = [name for name in sorted(called)
             if not _FOR_KERNELS.fullmatch(name)] if IS_KNOWN else []
    return "".join(f"""
\t.globl __wrap_{name}
\t.type __wrap_{name}, @function
__wrap_{name}:
\tmovq flash_simt_worker@gottpoff(%rip), %r11
\tcmpq $0, %fs:(%r11)
\tjne 1f
\tjmp __real_{name}@PLT
1:\tleaq 2f(%rip), %rdi
\tmovq (%rsp), %rsi
\tsubq $8, %rsp
\tcall flash_simt_is_for_host@PLT
2:\t.string "{name}"
""" for name in names), names


def size(name: str, operands: list[str]) -> int:
    """The bytes of an instruction's access to memory."""
    name = name.removeprefix("lock ")
    if broadcast := re.search(r"\{1to\d+\}", " ".join(operands)):
        return 8 if name.endswith(("d", "q")) and broadcast else 4
    if found := re.fullmatch(r"v?p?mov[sz]([bw])[wlq]+|v?p?mov[sz]l?(l)q", name):
        return _SUFFIX[found[1] or found[2]]
    if name.startswith("set"):
        return 1
    if found := re.fullmatch(r"v?cvt\w*2\w+([lq])", name):
        return _SUFFIX[found[1]]
    if re.fullmatch(r"v?cvtt?ss2\w+|v?(?!cvt)\w*ss|v?movd", name):
        return 4
    if re.fullmatch(r"v?cvtt?sd2\w+|v?(?!cvt)\w*sd|v?mov[hl]p[sd]|v?movq", name):
        return 8
    if found := re.fullmatch(r"v?p(?:broadcast|insr|extr)([bwdq])", name):
        return {"d": 4}.get(found[1]) or _SUFFIX[found[1]]
    if found := re.match(r"f\w*?([slt])$", name):
        return {"s": 4, "l": 8, "t": 16}[found[1]]
    if vectors := re.findall(r"%([xyz])mm", " ".join(operands)):
        return {"x": 16, "y": 32, "z": 64}[max(vectors)]
    for operand in reversed(operands):
        if re.fullmatch(r"%([abcd][lh]|[sd]il|[sb]pl|r\d+b)", operand):
            return 1
        if found := _REGISTER.match(operand):
            return 8 if operand.startswith("%r") and operand[-1] not in "dw" else \
                4 if found["e"] or operand.endswith("d") else 2
    return _SUFFIX.get(name[-1], 8)


class _Block:
    """What is known in a piece of straight code. A value is a tuple: a constant, and how often each
    unknown is in it."""

    def __init__(self, frame: bool) -> None:
        self.values: dict[str, tuple] = {"sp": (0, (("stack", 1),))}
        if frame:
            self.values["bp"] = (0, (("stack", 1), ("frame", 1)))
        self.slots: dict[tuple, tuple] = {}
        self.made: dict[tuple, tuple] = {}
        self.told: deque[tuple[tuple, int, bool]] = deque(maxlen=256)  # each access looks through
        self.unknowns = 0

    def fresh(self) -> tuple:
        self.unknowns += 1
        return 0, ((f"u{self.unknowns}", 1),)

    def result(self, name: str, value: tuple) -> tuple:
        """Of an instruction: the same value for the same operand."""
        return self.made.setdefault((name, value), self.fresh())

    def set(self, register: str, value: tuple) -> None:
        is_short = len(value[1]) <= _MOST_TERMS and all(
            abs(number) < 1 << 64 for number in (value[0], *(times for _, times in value[1])))
        self.values[register] = value if is_short else self.fresh()

    def get(self, register: str) -> tuple:
        return self.values.setdefault(register, self.fresh())

    def forget(self, address: tuple, many: int) -> None:
        """What the slots that a write of `many` bytes may change had."""
        place, terms = address
        is_known = len(self.slots) < _MOST_SLOTS and terms in (
            (("stack", 1),), (("frame", 1), ("stack", 1)))
        self.slots = {(at, of): value for (at, of), value in self.slots.items()
                      if is_known and of == terms and (at + 8 <= place or place + many <= at)}

    def address(self, found: re.Match) -> tuple:
        text = found["offset"]
        try:
            constant, terms = int(text or "0", 0), {}
        except ValueError:
            constant, terms = 0, {text: 1}
        for register, scale in ((found["base"], 1), (found["index"], int(found["scale"] or 1))):
            if register == "%rip":
                terms["rip"] = 1
            elif register:
                more, parts = self.get(_whole(register))
                constant += more * scale
                for name, times in parts:
                    terms[name] = terms.get(name, 0) + times * scale
        return constant, tuple(sorted((name, times) for name, times in terms.items() if times))


def _constants(text: str) -> set[str]:
    """The names of what the file has in sections that nobody can write to."""
    found, is_constant = set(), False
    for line in re.finditer(r"(?m)^\t\.(?:(text|data|bss)\b|section\s+\.?(\w+)([\w.]*))"
                            r"|^([\w.$]+):", text):
        if not line[4]:
            is_constant = line[2] == "rodata" or (line[3] or "").startswith(".rel.ro")
        elif is_constant:
            found.add(line[4])
    return found


def _is_own(address: tuple, found: re.Match, constants: set[str]) -> bool:
    """A constant of the file by its name, the built-in variables, or on the stack, not far away:
    without an index, which may lead anywhere."""
    names = dict(address[1])
    if any(re.match(r"u\d", name) for name in names):
        return False
    if names.get("rip") == 1:
        name = found["offset"]
        return "@" in name or re.split(r"[+-]", name)[0] in constants
    return bool(found["segment"]) or names.get("stack") == 1 and abs(address[0]) < _STACK


def instrumented(text: str) -> str:
    """The assembly with calls for all accesses that it does not tell of. Raises Odd."""
    if not IS_KNOWN:
        return text
    return "\n".join(_lines(text)) + "\n"


def _lines(text: str) -> Iterator[str]:
    block, frame, is_emulators, work, pushed = _Block(False), False, False, 0, ""
    constants = _constants(text)
    functions = {name for name in re.findall(r"(?m)^\t\.type\t([\w.$]+), @function", text)
                 if ".cold" not in name}
    for line in text.split("\n"):
        if line.startswith("\t."):  # most lines: debug information
            yield line
            continue
        if work and (line[:1] not in "\t " or re.match(
                r"\s(j|call\s(?!__(tsan|ubsan))|ret|notrack|bnd)", line)):
            yield from _count(work)
            work = 0
        if line[:1] not in "\t ":  # a label
            if not line.startswith(".L"):
                frame, is_emulators = False, bool(_EMULATOR.match(line))
                if _OF_OWN_TYPES.match(line):
                    raise Odd("a reduction with a type of its own")
            block = _Block(frame)
            yield line
            if line.rstrip(":") in functions:
                yield from _SAVES
            continue
        words = line.strip().split(None, 1)
        for word in words[:1] + words[1:] * (words[:1] == ["rep"]):
            yield from _TAKES.get(word, ())
        if is_emulators or not words or words[0][0] in ".#":
            yield line
            if words and words[0] == "pushq":
                yield from _SAVES
            continue
        name, operands = words[0], _split(words[1].strip() if len(words) > 1 else "")
        if name in ("rep", "repz", "repnz", "lock", "notrack", "bnd"):
            more = words[1].split(None, 1)
            name, operands = f"{name} {more[0]}", _split(more[1] if len(more) > 1 else "")
        if _ODD.fullmatch(name.split()[-1]) or not operands and re.fullmatch("(mov|sto)s.", name):
            raise Odd(f"the instruction {name}")
        if name.endswith("jmp") and operands[0].startswith("*"):
            raise Odd(f"the instruction {name} to an address")
        # Elsewhere it is the address of a local variable.
        if name == "movq" and operands == ["%rsp", "%rbp"] and pushed == "%rbp":
            frame = True
        pushed = operands[0] if name == "pushq" else ""
        yield from _before(block, name, operands, constants)
        yield line
        if name == "pushq":
            yield from _SAVES
        if name == "call" and not _WAITS.match(operands[0]):
            work += _WORK_OF_A_CALL
        elif not _NO_WORK.fullmatch(name):
            vector = any(re.match("%[xyz]mm", operand) for operand in operands)
            work += size(name, operands) // 4 if vector and not name.endswith(("ss", "sd")) else 1
        _after(block, name, operands)
        if name.startswith("j") or name == "ret":
            block = _Block(frame)


def _on_stack(*of_a_kernel: str) -> list[str]:
    """In a kernel, with %rcx: how far from the stack its copy lies (flash_simt_copy). Registers and
    flags stay."""
    return ["\tpushq\t%rax", "\tpushq\t%rcx", "\tmovq\tflash_simt_copy@gottpoff(%rip), %rax",
            "\tmovq\t%fs:(%rax), %rcx", "\tjrcxz\t771f", *of_a_kernel,
            "771:\tpopq\t%rcx", "\tpopq\t%rax"]


def _take(place: str) -> list[str]:
    return _on_stack(f"\tmovq\t({place}), %rax", f"\tmovq\t({place},%rcx), %rcx", "\tnotq\t%rcx",
                     "\tleaq\t1(%rax,%rcx), %rcx", "\tjrcxz\t771f",
                     "\tandq\t$-16, %rsp", "\tcall\tflash_simt_other_stack@PLT")


# What calls and pushes leave on the stack has a copy, which nobody can write to: an address to
# return to, and registers of the caller. Both are compared where the stack gives them back.
_SAVES = _on_stack("\tmovq\t16(%rsp), %rax", "\tmovq\t%rax, 16(%rsp,%rcx)")
_TAKES = {"ret": [line.replace("(%rsp", "16(%rsp") for line in _take("%rsp")],
          "leave": _take("%rbp")}
_TAKES["popq"] = _TAKES["ret"]


def _count(work: int) -> Iterator[str]:
    """Adds to the running thread's work, and leaves registers and flags alone."""
    yield "\tpushq\t%rax"
    yield "\tpushq\t%rcx"
    yield "\tmovq\tflash_simt_work@gottpoff(%rip), %rax"
    yield "\tmovq\t%fs:(%rax), %rcx"
    yield f"\tleaq\t{work}(%rcx), %rcx"
    yield "\tmovq\t%rcx, %fs:(%rax)"
    yield "\tpopq\t%rcx"
    yield "\tpopq\t%rax"


def _touch(place: str, code: str, on_stack: bool = False) -> Iterator[str]:
    """A call for an access; `on_stack` not for one in the 64 KiB above the stack pointer, of which
    there are many. Registers and flags stay."""
    yield "\tpushq\t%rdi"
    place = re.sub(r"^([^(]*)[(]%rsp", lambda at: f"{int(at[1] or '0', 0) + 8}(%rsp", place)
    yield f"\tleaq\t{place}, %rdi"
    if on_stack:
        yield from ("\tpushq\t%rcx", "\tmovq\t%rsp, %rcx", "\tnotq\t%rcx",
                    "\tleaq\t1(%rdi,%rcx), %rcx", "\tpushq\t%rcx", "\tmovl\t4(%rsp), %ecx",
                    "\tjrcxz\t771f", "\tjmp\t772f", "771:\tmovzwl\t2(%rsp), %ecx",
                    "\tjrcxz\t773f", "772:\tpopq\t%rcx", "\tpopq\t%rcx")
    yield "\tpushq\t%rsi"
    yield f"\t{code}, %rsi"
    yield "\tcall\tflash_simt_touch@PLT"
    yield "\tpopq\t%rsi"
    if on_stack:
        yield from ("\tjmp\t774f", "773:\tpopq\t%rcx", "\tpopq\t%rcx", "774:")
    yield "\tpopq\t%rdi"


def _before(block: _Block, name: str, operands: list[str],
            constants: set[str]) -> Iterator[str]:
    """What is put in before this instruction."""
    if name in ("call", "notrack call") and operands[0].startswith("*"):
        yield "\tpushq\t%rdi"
        yield f"\tmovq\t{operands[0][1:]}, %rdi"
        yield "\tcall\tflash_simt_call@PLT"
        yield "\tpopq\t%rdi"
        return
    if found := re.fullmatch(r"rep (movs|stos)([bwlq])", name):
        bytes_each = _SUFFIX[found[2]]
        for register, write in (("di", True), ("si", False)):
            if register == "si" and found[1] == "stos":
                continue
            if not any(unknown == "stack" for unknown, _ in block.get(register)[1]):
                yield from _touch(f"(%r{register})",
                                  f"leaq\t{IS_WRITE * write}(,%rcx,{bytes_each})")
        return
    if _NO_ACCESS.fullmatch(name):
        return
    for n, operand in enumerate(operands):
        plain = re.sub(r"\{[^}]*\}", "", operand)
        found = _MEMORY.match(plain) if operand[0] not in "$*" and not operand.startswith(
            "%") or operand.startswith(("%fs:", "%gs:")) else None
        if not found:
            continue
        if "{%k" in operand:
            raise Odd(f"the instruction {name} with a mask")
        address = block.address(found)
        if _is_own(address, found, constants):
            continue
        if found["segment"]:
            raise Odd(f"the instruction {name} with an address in {found['segment']}")
        many = size(name, operands)
        last = n == len(operands) - 1
        moves = re.fullmatch(r"v?k?mov\w*|set\w+|v?cvt\w*|v?p?extr\w*|fn?st\w*|v?st\w+", name)
        kinds = ([True] if last and moves else [False]) if moves or not last or \
            _ONLY_READS.fullmatch(name) else [False, True]
        if len(operands) == 1 and _ONLY_READS.fullmatch(name):
            kinds = [False]
        for write in kinds:
            if not any(write == told_write and terms == address[1] and
                       0 <= address[0] - constant <= told - many
                       for (constant, terms), told, told_write in block.told):
                yield from _touch(plain, f"leaq\t{many | IS_WRITE * write}",
                                  dict(address[1]).get("stack") == 1)


def _also_written(name: str, operands: list[str]) -> Iterator[str]:
    """The registers that it changes beside its last operand."""
    if re.fullmatch("i?(mul|div).", name) and len(operands) == 1 or name.startswith("cmpxchg"):
        yield from ("ax", "dx")
    if name.startswith(("xchg", "xadd", "mulx")):
        yield from filter(None, map(_whole, operands[-2:]))
    if name.startswith("rep"):
        yield from ("di", "si", "cx")


def _after(block: _Block, name: str, operands: list[str]) -> None:
    """What is known behind this instruction."""
    if name in ("call", "notrack call"):
        target = operands[0].removesuffix("@PLT")
        if found := re.fullmatch(r"__tsan_(?:volatile_|unaligned_)?(read|write)(\d+|_range)",
                                 target):
            length, terms = block.get("si")
            many = int(found[2]) if found[2] != "_range" else 0 if terms else length
            block.told.append((block.get("di"), many, found[1] == "write"))
        elif not target.startswith(("__ubsan", "__tsan")):
            block.told.clear()
            block.slots.clear()  # it may have pointers to them
        for register in _SPOILT:
            block.values[register] = block.fresh()
        return
    for register in _also_written(name.removeprefix("lock "), operands):
        block.values[register] = block.fresh()
    if not operands:
        if name.startswith("rep"):
            block.slots.clear()
        if name in ("cltq", "cqto", "cltd", "cwtl", "cwtd", "cbtw"):
            value = block.get("ax")
            block.set("dx" if name in ("cqto", "cltd", "cwtd") else "ax",
                      block.result(name, value))
        return
    target, sources = operands[-1], operands[:-1]
    register = _whole(target) if target.startswith("%") else ""
    if name in ("pushq", "popq"):
        constant, terms = block.get("sp")
        value = block.fresh()
        if name == "popq" and register:
            block.values[register] = block.slots.setdefault((constant, terms), value)
        if name == "pushq":
            block.slots[constant - 8, terms] = block.get(register) if register else block.fresh()
        block.values["sp"] = constant + (8 if name == "popq" else -8), terms
        return
    if not register:
        if not target.startswith(("%", "$", "*")) and (found := _MEMORY.match(target)):
            address = block.address(found)
            block.forget(address, size(name, operands))
            if name == "movq" and _whole(sources[0]):
                block.slots[address] = block.get(_whole(sources[0]))
        return
    value = block.fresh()
    source = sources[0] if sources else ""
    if name == "movq" and source.startswith("%") and _whole(source):
        value = block.get(_whole(source))
    elif name == "movq" and source.endswith("@gottpoff(%rip)"):
        value = 0, ((source, 1),)
    elif name == "movq" and (found := _MEMORY.match(source)) and source[0] != "%":
        value = block.slots.setdefault(block.address(found), value)
    elif name in ("leaq",) and (found := _MEMORY.match(source)):
        value = block.address(found)
    elif name in ("movl", "movq") and source.startswith("$"):
        try:
            value = int(source[1:], 0), ()
        except ValueError:
            pass
    elif name in ("addq", "subq") and re.match(r"\$-?\d", source):  # and no symbol
        constant, terms = block.get(register)
        step = int(source[1:], 0)
        value = constant + (step if name == "addq" else -step), terms
    elif name == "addq" and _whole(source):
        (a, some), (b, others) = block.get(register), block.get(_whole(source))
        terms = dict(some)
        for unknown, times in others:
            terms[unknown] = terms.get(unknown, 0) + times
        value = a + b, tuple(sorted((k, v) for k, v in terms.items() if v))
    elif name in ("movslq", "movl") and source.startswith("%") and _whole(source):
        value = block.result(name, block.get(_whole(source)))
    elif name == "andq" and register == "sp":
        value = 0, (("stack", 1), ("aligned", 1))
    block.set(register, value)
