// How a call or a callback ended: from an exception to a message, and back in the other process.
#pragma once

#include <cstdio>
#include <exception>
#include <string>
#include <utility>

#include "common/error.hpp"
#include "harness/judge/protocol.hpp"

namespace flash::grading {

// A case calls another task of the same author, and there is no library of it: "not started".
struct NoOtherTask : Error {
  using Error::Error;
};

// One that is neither the course's nor a std::runtime_error.
struct OtherException : std::exception {
  explicit OtherException(std::string what) : text(std::move(what)) {}
  const char* what() const noexcept override { return text.c_str(); }
  std::string text;
};

// Call it in a catch clause: puts the exception that was caught into a message.
inline void put_exception(Message& message) {
  const auto put = [&message](Ended how, const char* text) {
    message.ended = how;
    std::snprintf(message.text, kMostText, "%s", text);
  };
  try {
    throw;
  } catch (const NotYetImplemented& error) {
    put(Ended::kNotYetImplemented, error.task().c_str());
  } catch (const NoOtherTask& error) {
    put(Ended::kNoOtherTask, error.what());
  } catch (const ShapeError& error) {
    put(Ended::kShapeError, error.what());
  } catch (const ArgumentError& error) {
    put(Ended::kArgumentError, error.what());
  } catch (const Unsupported& error) {
    put(Ended::kUnsupported, error.what());
  } catch (const OutOfMemory& error) {
    put(Ended::kOutOfMemory, error.what());
  } catch (const KernelError& error) {
    put(Ended::kKernelError, error.what());
  } catch (const CudaError& error) {
    put(Ended::kCudaError, error.what());
  } catch (const Error& error) {
    put(Ended::kError, error.what());
  } catch (const std::exception& error) {
    put(Ended::kOther, error.what());
  } catch (...) {
    put(Ended::kOther, "something that is not a std::exception");
  }
}

// Throws what such a message says.
[[noreturn]] inline void throw_again(const Message& message) {
  const std::string text = message.text;
  switch (message.ended) {
    case Ended::kNotYetImplemented: throw NotYetImplemented(text);
    case Ended::kNoOtherTask: throw NoOtherTask(text);
    case Ended::kShapeError: throw ShapeError(text);
    case Ended::kArgumentError: throw ArgumentError(text);
    case Ended::kUnsupported: throw Unsupported(text);
    case Ended::kOutOfMemory: throw OutOfMemory(text);
    case Ended::kKernelError: throw KernelError(text);
    case Ended::kCudaError: throw CudaError(text);
    case Ended::kError: throw Error(text);
    default: throw OtherException(text);
  }
}

}  // namespace flash::grading
