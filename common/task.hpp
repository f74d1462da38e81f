// How the functions of a task leave its library, and how a program gets them: by the library's
// path, and by nothing else.
//
// A contract header defines for each of its tasks a struct of function pointers, which are by
// default the contract's functions. A task's file ends with
//
//   FLASH_TASK(FusedCpuTask)
//
// and exports with it the one symbol that a task's library has. load_task<FusedCpuTask>(path) gives
// the struct back.
#pragma once

#include <string>
#include <typeinfo>

#include "common/export.hpp"

namespace flash {

// What flash_task() returns: the task's id, as in tasks.toml, and its struct of functions.
struct TaskEntry {
  const char* id;
  const void* functions;
};

// A task whose functions are templates has a struct of functions for each element type.
template <template <class> class Functions, class... Types>
struct ForTypes : Functions<Types>... {
  template <class T>
  const Functions<T>& of() const {
    return *this;
  }
};

// The functions in the library of a task, which stays loaded: a second call takes 0.1 us. Throws
// Error, in words that say what to do, if there is no such library, if it does not load, or if it
// belongs to another task.
FLASH_EXPORT const void* load_task(const std::string& path, const char* id,
                                   const char* mangled_struct);

template <class Task>
const Task& load_task(const std::string& path) {
  return *static_cast<const Task*>(load_task(path, Task::kId, typeid(Task).name()));
}

// A task by its library, which is loaded when a function is first called. If it cannot be loaded,
// that call throws, and the caller has to show why.
template <class Task>
struct TaskLibrary {
  std::string path;

  const Task* operator->() const { return &load_task<Task>(path); }
};

// The libraries of a build that have one author's tasks, for one backend.
struct TaskLibraries {
  std::string prefix = "";  // "/course/build/default/lib/lib"
  std::string suffix = "";  // "_solution_emulated.so"

  template <class Task>
  TaskLibrary<Task> library() const {
    return {path(Task::kId)};
  }
  FLASH_EXPORT std::string path(std::string task) const;
};

}  // namespace flash

#define FLASH_TASK(Task)                                  \
  extern "C" FLASH_EXPORT flash::TaskEntry flash_task() { \
    static constexpr flash::Task functions;               \
    return {flash::Task::kId, &functions};                \
  }
