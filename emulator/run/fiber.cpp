// Implements fiber.hpp: the switch in assembly for x86-64 and AArch64 on Linux.
#include "emulator/run/fiber.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <new>

#include "emulator/run/shadow.hpp"

namespace flash::simt {

#if defined(__x86_64__)
// System V ABI: a call preserves rbx, rbp and r12 to r15. Everything else the compiler has saved
// where it needs it.
asm(R"(
  .text
  .globl flash_simt_switch
  .type flash_simt_switch, @function
  .p2align 4
flash_simt_switch:
  endbr64
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size flash_simt_switch, .-flash_simt_switch
)");
constexpr std::size_t kSavedWords = 6;
#elif defined(__aarch64__)
// AAPCS64: a call preserves x19 to x29 and the low halves of v8 to v15; x30 is where to return to.
asm(R"(
  .text
  .globl flash_simt_switch
  .type flash_simt_switch, %function
  .p2align 4
flash_simt_switch:
  stp x19, x20, [sp, #-160]!
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  ldp x19, x20, [sp], #160
  ret
  .size flash_simt_switch, .-flash_simt_switch
)");
#else
#error "The emulator needs x86-64 or AArch64: configure with -DFLASH_SIMT=OFF on this processor."
#endif

FiberStacks::FiberStacks(std::size_t count) : count_(count), memory_(reserve(count * kStride)) {}

FiberStacks::~FiberStacks() { munmap(memory_, count_ * kStride); }

void* FiberStacks::prepared(std::size_t index, void (*entry)()) {
  for (; guarded_ <= index; ++guarded_)
    if (mprotect(memory_ + guarded_ * kStride, kGuard, PROT_NONE) != 0) throw std::bad_alloc();
#if defined(__x86_64__)
  auto* stack = reinterpret_cast<std::uintptr_t*>(top(index));
  *--stack =
      0;  // where `entry` would return to: it starts as if called, 8 bytes off a multiple of 16
  *--stack = reinterpret_cast<std::uintptr_t>(entry);
  for (std::size_t word = 0; word < kSavedWords; ++word) *--stack = 0;
  return stack;
#else
  auto* stack = reinterpret_cast<std::uintptr_t*>(top(index) - 160);
  for (int word = 0; word < 20; ++word) stack[word] = 0;
  stack[11] = reinterpret_cast<std::uintptr_t>(entry);  // x30
  return stack;
#endif
}

long FiberStacks::overflowed(const void* address) const {
  const auto offset = static_cast<std::size_t>(static_cast<const char*>(address) - memory_);
  if (address < memory_ || offset >= count_ * kStride || offset % kStride >= kGuard) return -1;
  return static_cast<long>(offset / kStride);
}

}  // namespace flash::simt
