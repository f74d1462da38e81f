// The clock that work is measured with. On a GPU work is asynchronous: it is enqueued, and done
// later.
#pragma once

namespace flash {

// What a measurement reads.
class Clock {
 public:
  virtual ~Clock() = default;

  // Waits until everything enqueued so far is done.
  virtual void synchronize() = 0;

  // The time in milliseconds since some fixed moment. Means something only right after
  // synchronize().
  virtual double now_ms() = 0;
};

}  // namespace flash
