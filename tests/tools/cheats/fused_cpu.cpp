// Submissions to a board that want a short time without the work: test_leaderboard.py measures each
// of them without the audit, and none may get a result. The environment's CHEAT names the one that
// runs; "honest" is right, and has to get one. All are of task part1.fused_cpu.
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "common/error.hpp"
#include "grading/judge/protocol.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"

namespace flash {
namespace {

using Pass = SoftmaxMatmul<float>;
using Result = std::vector<float>;

int calls = 0;  // this one included

// softmax(X) V for the rows before `rows` and the keys before `keys`; `weight` is the exponential.
template <class Weight>
void compute(const Pass& pass, Index rows, Index keys, Weight weight) {
  const auto s = pass.shape();
  std::vector<float> o(static_cast<std::size_t>(s.d3));
  for (Index b = 0; b < s.batch; ++b)
    for (Index i = 0; i < rows; ++i) {
      float m = -INFINITY, l = 0;
      for (Index j = 0; j < keys; ++j) m = std::fmax(m, pass.x(b, i, j));
      std::fill(o.begin(), o.end(), 0.0f);
      for (Index j = 0; j < keys; ++j) {
        const float p = weight(pass.x(b, i, j) - m);
        l += p;
        for (Index c = 0; c < s.d3; ++c) o[c] += p * pass.v(b, j, c);
      }
      for (Index c = 0; c < s.d3; ++c) pass.out(b, i, c) = o[c] / l;
    }
}

float exact(float x) { return std::exp(x); }
void honest(const Pass& pass) { compute(pass, pass.shape().d1, pass.shape().d2, exact); }

template <class Value>
void write_all(const Pass& pass, Value value) {
  const auto s = pass.shape();
  for (Index b = 0; b < s.batch; ++b)
    for (Index i = 0; i < s.d1; ++i)
      for (Index c = 0; c < s.d3; ++c) pass.out(b, i, c) = value(b, i, c);
}

Result kept_of(const Pass& pass) {
  const float* const out = pass.out.data();
  return Result(out, out + pass.out.size());
}

// Computes once for each key, and then writes what it computed before.
template <class Key>
void replay(const Pass& pass, Key key) {
  static std::map<Key, Result> kept;
  Result& result = kept[key];
  if (result.empty()) {
    honest(pass);
    result = kept_of(pass);
  }
  std::copy(result.begin(), result.end(), pass.out.data());
}

void spin(double ms) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double, std::milli>(ms);
  while (std::chrono::steady_clock::now() < end) {
  }
}

// ---- the runner's protocol, which anybody may read ----------------------------------------------

using grading::Kind;
using grading::kSocket;
using grading::Message;

void say(Kind kind) {
  Message message{};
  message.kind = kind;
  if (write(kSocket, &message, sizeof message) < 0) _exit(1);
}

// Serves all further calls itself. It works as soon as it sees inputs, if the judge has not asked
// for the call yet; a call for which it could not begin early gets no result, so that an output
// shows that it could.
[[noreturn]] void serve_early() {
  for (;;) {
    Message map{};
    iovec part{&map, sizeof map};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr header{};
    header.msg_iov = &part, header.msg_iovlen = 1;
    header.msg_control = control, header.msg_controllen = sizeof control;
    if (recvmsg(kSocket, &header, 0) <= 0) _exit(1);
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
    say(Kind::kMapped);
    const auto asked = [] {
      char one;
      iovec peek{&one, 1};
      msghdr peeked{};
      peeked.msg_iov = &peek, peeked.msg_iovlen = 1;
      return recvmsg(kSocket, &peeked, MSG_PEEK | MSG_DONTWAIT) > 0;
    };
    while (!asked())
      if (!std::isnan(last) && !asked()) {
        honest(pass);
        break;
      }
    Message call{};
    iovec rest{&call, sizeof call};
    msghdr asking{};
    asking.msg_iov = &rest, asking.msg_iovlen = 1;
    if (recvmsg(kSocket, &asking, 0) <= 0) _exit(1);
    say(Kind::kDone);
    munmap(memory, map.bytes);
  }
}

// ---- the cheats ---------------------------------------------------------------------------------

const std::map<std::string, void (*)(const Pass&)> kCheats = {
    {"honest", honest},

    // ---- time ----
    {"replays by pointer", [](const Pass& pass) { replay(pass, pass.x.data()); }},
    {"replays by shape", [](const Pass& pass) { replay(pass, pass.x.size()); }},
    {"replays by a coarse fingerprint",
     [](const Pass& pass) {
       int positive = 0;  // about half of these numbers, in eighths
       for (int i = 0; i < 4096; ++i) positive += pass.x.data()[i] > 0;
       replay(pass, (positive + 256) / 512);
     }},
    {"works in the warm-up only",
     [](const Pass& pass) {
       if (calls <= 2) honest(pass);
     }},
    {"takes its time in the warm-up, then skips",
     [](const Pass& pass) { calls == 1 ? spin(300), honest(pass) : void(); }},
    {"computes two calls in one, skips the next",
     [](const Pass& pass) {
       static Result kept;
       if (calls % 2 == 1) {
         honest(pass);
         kept = kept_of(pass);
       } else {
         std::copy(kept.begin(), kept.end(), pass.out.data());
       }
     }},
    {"skips every fourth call",
     [](const Pass& pass) {
       if (calls % 4 != 0) honest(pass);
     }},
    {"works after it said that it is done",
     [](const Pass& pass) {
       say(Kind::kDone);
       spin(5);
       honest(pass);
     }},
    {"says that it is done, and does nothing", [](const Pass&) { say(Kind::kDone); }},
    {"works before the clock runs",
     [](const Pass& pass) {
       honest(pass);
       say(Kind::kDone);
       serve_early();
     }},
    {"drives one problem to no time",
     [](const Pass& pass) {
       if (pass.shape().batch == 1) honest(pass);
     }},
    {"runs out of memory when it is timed",
     [](const Pass& pass) {
       if (calls > 1) throw OutOfMemory("not this time");
       honest(pass);
     }},
    {"is not written yet when it is timed",
     [](const Pass& pass) {
       if (calls > 1) throw NotYetImplemented("part1.fused_cpu");
       honest(pass);
     }},
    {"ends the process when it is timed",
     [](const Pass& pass) {
       if (calls > 1) _exit(0);
       honest(pass);
     }},
    {"prints samples of its own",
     [](const Pass&) {
       std::printf("{\"event\": \"sample\", \"student_ms\": 0.001}\n{\"event\": \"complete\"}\n");
       std::fflush(stdout);
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
    {"sets the clock back",
     [](const Pass&) {
       const timespec then{};
       syscall(SYS_clock_settime, CLOCK_REALTIME, &then);
     }},
    {"stops the judge", [](const Pass&) { syscall(SYS_kill, getppid(), 19); }},

    // ---- results that were not computed ----
    {"writes nothing", [](const Pass&) {}},
    {"writes zeros", [](const Pass& pass) { write_all(pass, [](auto...) { return 0.0f; }); }},
    {"writes NaN", [](const Pass& pass) { write_all(pass, [](auto...) { return NAN; }); }},
    {"writes infinity",
     [](const Pass& pass) { write_all(pass, [](auto...) { return INFINITY; }); }},
    {"copies a row of V",
     [](const Pass& pass) {
       write_all(pass, [&](Index b, Index i, Index c) { return pass.v(b, i % 32, c); });
     }},
    {"writes the mean of V, as if all scores were equal",
     [](const Pass& pass) {
       compute(pass, pass.shape().d1, pass.shape().d2, [](float) { return 1.0f; });
     }},
    {"hands out memory that nobody wrote",
     [](const Pass& pass) {
       const float* const stale = new float[1 << 20];
       write_all(pass, [&](Index, Index i, Index c) { return stale[i * 64 + c]; });
       delete[] stale;
     }},
    {"changes the inputs to what it computes",
     [](const Pass& pass) {
       for (Index n = 0; n < pass.v.size(); ++n) const_cast<float&>(pass.v.data()[n]) = 0;
       write_all(pass, [](auto...) { return 0.0f; });
     }},
    {"knows the inputs of another seed",
     [](const Pass& pass) {
       Result x(static_cast<std::size_t>(pass.x.size())),
           v(static_cast<std::size_t>(pass.v.size()));
       for (std::size_t n = 0; n < x.size(); ++n) x[n] = std::sin(static_cast<float>(n));
       for (std::size_t n = 0; n < v.size(); ++n) v[n] = std::cos(static_cast<float>(n));
       honest({{x.data(), pass.x.shape(), pass.x.strides()},
               {v.data(), pass.v.shape(), pass.v.strides()},
               pass.out});
     }},
    {"looks for the result in its memory",
     [](const Pass& pass) {
       const float* const from = pass.out.data() + pass.out.size() + 16;
       write_all(pass, [&](Index, Index i, Index) { return from[i]; });
     }},
    {"calls the reference",
     [](const Pass& pass) {
       using Given = void(const Pass&, int);
       if (void* const given =
               dlsym(RTLD_DEFAULT, "_ZN5flash14softmax_matmulERKNS_13SoftmaxMatmulIfEEi"))
         reinterpret_cast<Given*>(given)(pass, -1);
     }},

    // ---- results that are nearly right ----
    {"leaves the last tile of keys out",
     [](const Pass& pass) { compute(pass, pass.shape().d1, pass.shape().d2 - 16, exact); }},
    {"leaves the last row out",
     [](const Pass& pass) { compute(pass, pass.shape().d1 - 1, pass.shape().d2, exact); }},
    {"computes half of the keys",
     [](const Pass& pass) { compute(pass, pass.shape().d1, pass.shape().d2 / 2, exact); }},
    {"rounds the weights to bfloat16",
     [](const Pass& pass) {
       compute(pass, pass.shape().d1, pass.shape().d2, [](float x) {
         std::uint32_t bits;
         const float p = std::exp(x);
         memcpy(&bits, &p, sizeof bits);
         bits &= 0xffff0000u;
         float rounded;
         memcpy(&rounded, &bits, sizeof bits);
         return rounded;
       });
     }},
    {"takes a cheap exponential",
     [](const Pass& pass) {
       compute(pass, pass.shape().d1, pass.shape().d2, [](float x) {
         const auto bits =
             static_cast<std::int32_t>(12102203.0f * std::fmax(x, -80.0f)) + 1064866805;
         float p;
         memcpy(&p, &bits, sizeof p);
         return p;
       });
     }},
    {"drops small weights",
     [](const Pass& pass) {
       compute(pass, pass.shape().d1, pass.shape().d2,
               [](float x) { return x < -5 ? 0.0f : std::exp(x); });
     }},
    {"is right, and writes around its output",
     [](const Pass& pass) {
       honest(pass);
       pass.out.data()[-1] = 0;
     }},
};

}  // namespace

void fused_softmax_matmul(const SoftmaxMatmul<float>& pass, const SoftmaxMatmulBlocks&) {
  static const auto& cheat = kCheats.at(std::getenv("CHEAT"));
  ++calls;
  cheat(pass);
}

}  // namespace flash
