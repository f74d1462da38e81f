// What the judge of a class puts into the code of a submission, beyond the compiler's
// instrumentation (tools/lab/submission/assembly.py): a call before an access to memory that the
// compiler did not tell of, before a call by a pointer, and in the place of a call of a host
// function. It also counts in flash_simt_work, and keeps a copy of the stack (checker.hpp).
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "emulator/check/checker.hpp"
#include "emulator/run/worker.hpp"

namespace {

using namespace flash::simt;

bool is_library(const Module& module, const char* name) {
  return module.path.find(std::string("/") + name) != std::string::npos;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// `bytes`, from `address` on; with kIsWrite, they are written.
void flash_simt_touched(const char* address, std::uint64_t bytes, const void* return_address) {
  constexpr std::uint64_t kIsWrite = 1u << 30;
  Checker* const checker = Checker::active();
  if (checker == nullptr) return;
  const bool is_write = (bytes & kIsWrite) != 0;
  for (std::uint64_t left = bytes & ~kIsWrite; left > 0;) {
    const std::uint64_t piece = left < 16 ? left : 16;
    checker->access(address, piece, is_write, call_before(return_address));
    address += piece;
    left -= piece;
  }
}

// A kernel calls functions of its own file, at their beginning. Host code may also be given others,
// such as what() of an exception.
void flash_simt_called(const void* target, std::uint64_t, const void* return_address) {
  Worker* const worker = Worker::current();
  const Module& own = module_of(return_address);
  const auto value = reinterpret_cast<std::uintptr_t>(target);
  if (value >= own.begin && value < own.end) {
    if (worker == nullptr ? !function_at(own, value).empty() : is_function_of_file(own, value))
      return;
  } else if (worker == nullptr) {
    const Module& other = module_of(target);
    if (is_library(other, "libstdc++") || is_library(other, "libflash_common")) return;
  }
  if (worker != nullptr)
    worker->fail_at(FindingKind::kHostCall, call_before(return_address),
                    "A pointer to a function has an address that is no function of this file.");
  std::fputs("the code of a .cu file calls by a pointer what is no function of the file\n", stderr);
  std::abort();
}

// What a call or a push left on the stack is not what is taken back.
[[noreturn]] void flash_simt_other_stack() {
  Worker::current()->fail_at(FindingKind::kOutOfBounds, call_before(__builtin_return_address(0)),
                             "It has written where its stack keeps the address to return to, or "
                             "what its caller needs.");
}

// A function that kernels have not on a GPU, or new and delete, whose memory nobody would count.
[[noreturn]] void flash_simt_is_for_host(const char* name, const void* return_address) {
  if (const std::string called = name; called.starts_with("_Zn") || called.starts_with("_Zd"))
    Worker::current()->fail_at(FindingKind::kHostCall, call_before(return_address),
                               "It calls `new` or `delete`, and nobody counts memory that a kernel "
                               "takes. Use local arrays and shared memory.");
  Worker::current()->fail_at(FindingKind::kHostCall, call_before(return_address), "It calls `",
                             name, "`, which only host code can call.");
}

#ifdef __x86_64__
// Calls flash_simt_touched or flash_simt_called with the first two arguments and the address to
// return to, and preserves all registers and flags: what it stands before knows nothing of it.
asm(R"(
  .text
  .macro flash_simt_keeping_all name, function
  .globl \name
  .type \name, @function
\name:
  pushfq
  pushq %rax
  pushq %rcx
  pushq %rdx
  pushq %rsi
  pushq %rdi
  pushq %r8
  pushq %r9
  pushq %r10
  pushq %r11
  pushq %rbp
  movq %rsp, %rbp
  movq 88(%rsp), %rcx
  subq $4096, %rsp
  andq $-64, %rsp
  xorl %eax, %eax
  movq %rax, 512(%rsp)
  movq %rax, 520(%rsp)
  movq %rax, 528(%rsp)
  movq %rax, 536(%rsp)
  movq %rax, 544(%rsp)
  movq %rax, 552(%rsp)
  movq %rax, 560(%rsp)
  movq %rax, 568(%rsp)
  movl $0xe7, %eax
  xorl %edx, %edx
  xsave64 (%rsp)
  movq %rcx, %rdx
  cld
  call \function@PLT
  movl $0xe7, %eax
  xorl %edx, %edx
  xrstor64 (%rsp)
  movq %rbp, %rsp
  popq %rbp
  popq %r11
  popq %r10
  popq %r9
  popq %r8
  popq %rdi
  popq %rsi
  popq %rdx
  popq %rcx
  popq %rax
  popfq
  ret
  .size \name, .-\name
  .endm
  flash_simt_keeping_all flash_simt_touch, flash_simt_touched
  flash_simt_keeping_all flash_simt_call, flash_simt_called
)");
#endif

}  // extern "C"
#pragma GCC visibility pop
