// Submissions to a board that want a short time without the work: test_leaderboard.py measures each
// of them, and those of cheats.hpp, without the audit, and none may get a result. The environment's
// CHEAT names the one that runs; "honest" is right, and has to get one. All are of task
// part1.fused_cpu.
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <vector>

namespace flash {
using Memory = std::vector<float>;
}
#include "tests/tools/cheats/cheats.hpp"

namespace flash {
namespace {

const char* const kReference = "_ZN5flash14softmax_matmulERKNS_13SoftmaxMatmulIfEEi";

void compute(const Pass& pass, Index keys, Weight how) {
  const auto s = pass.shape();
  std::vector<float> o(static_cast<std::size_t>(s.d3));
  for (Index b = 0; b < s.batch; ++b)
    for (Index i = 0; i < s.d1; ++i) {
      float m = -INFINITY, l = 0;
      for (Index j = 0; j < keys; ++j) m = maximum(how, m, pass.x(b, i, j), j);
      if (m == -INFINITY && how != Weight::kFinite) m = 0;
      std::fill(o.begin(), o.end(), 0.0f);
      for (Index j = 0; j < keys; ++j) {
        const float p = weight_of(how, pass.x(b, i, j) - m);
        l += p;
        for (Index c = 0; c < s.d3; ++c) o[c] += p * value_of(how, pass.v(b, j, c), m);
      }
      for (Index c = 0; c < s.d3; ++c)
        pass.out(b, i, c) = l == 0 && how != Weight::kFinite ? 0 : o[c] / l;
    }
}
void copy(float* to, const float* from, Index count) { std::copy_n(from, count, to); }
void fill(float* to, float value, Index count) { std::fill_n(to, count, value); }
Memory memory_for(Index count) { return Memory(static_cast<std::size_t>(count)); }
std::vector<float> on_host(const float* from, Index count) { return {from, from + count}; }

// Serves all further calls itself. It works as soon as it sees inputs, if the judge has not asked
// for the call yet; a call for which it could not begin early gets no result, so that an output
// shows that it could.
[[noreturn]] void serve_early() {
  for (;;) {
    grading::Message map{};
    iovec part{&map, sizeof map};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr header{};
    header.msg_iov = &part, header.msg_iovlen = 1;
    header.msg_control = control, header.msg_controllen = sizeof control;
    if (recvmsg(grading::kSocket, &header, 0) <= 0) _exit(1);
    int fd;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof fd);
    auto* const memory =
        static_cast<char*>(mmap(nullptr, map.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    close(fd);
    const auto view = [&]<class T>(int n, T) {
      const auto& of = map.placed[n];
      return TensorView<T, 3>(reinterpret_cast<T*>(memory + of.offset),
                              {of.shape[0], of.shape[1], of.shape[2]},
                              {of.strides[0], of.strides[1], of.strides[2]});
    };
    Pass pass{view.operator()<const float>(0, 0), view.operator()<const float>(1, 0),
              view.operator()<float>(2, 0)};
    const volatile float& last = pass.v.data()[pass.v.size() - 1];
    say(grading::Kind::kMapped);
    const auto asked = [] {
      char one;
      iovec peek{&one, 1};
      msghdr peeked{};
      peeked.msg_iov = &peek, peeked.msg_iovlen = 1;
      return recvmsg(grading::kSocket, &peeked, MSG_PEEK | MSG_DONTWAIT) > 0;
    };
    while (!asked())
      if (!std::isnan(last) && !asked()) {
        honest(pass);
        break;
      }
    grading::Message call{};
    iovec rest{&call, sizeof call};
    msghdr asking{};
    asking.msg_iov = &rest, asking.msg_iovlen = 1;
    if (recvmsg(grading::kSocket, &asking, 0) <= 0) _exit(1);
    say(grading::Kind::kDone);
    munmap(memory, map.bytes);
  }
}

const Cheats kOwn = {
    {"takes its time in the warm-up, then skips",
     [](const Pass& pass) { calls == 1 ? wait_for(300), honest(pass) : void(); }},
    {"works before the clock runs",
     [](const Pass& pass) {
       honest(pass);
       say(grading::Kind::kDone);
       serve_early();
     }},
    {"writes to every descriptor",
     [](const Pass&) {
       for (int fd = 4; fd < 64; ++fd)
         if (write(fd, "{\"event\": \"complete\"}\n", 22) < 0) continue;
     }},
    {"lets another process work",
     [](const Pass& pass) {
       if (syscall(SYS_fork) == 0) honest(pass), _exit(0);
     }},
    {"lets another thread work",
     [](const Pass& pass) {
       static char stack[65536];
       if (syscall(SYS_clone, 0x10f00, stack + sizeof stack, 0, 0, 0) == 0) honest(pass), _exit(0);
     }},
    {"stops the judge", [](const Pass&) { syscall(SYS_kill, getppid(), 19); }},
    {"hands out memory that nobody wrote",
     [](const Pass& pass) {
       const float* const stale = new float[1 << 20];
       copy(pass.out.data(), stale, pass.out.size());
       delete[] stale;
     }},
};

}  // namespace

void fused_softmax_matmul(const SoftmaxMatmul<float>& pass, const SoftmaxMatmulBlocks&) {
  cheat(pass, kOwn);
}

}  // namespace flash

FLASH_TASK(FusedCpuTask)
