// Where the parts of a CUDA toolkit may lie, in the order they are looked for: folders that variables name, the usual
// one, Python packages from PyPI. Nothing is executed to find out.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "dsl/export.h"

namespace attile {
inline namespace v1 {

// The machine that is searched; tests search another.
struct SearchedMachine {
  std::function<const char*(const char* name)> variable;  // null for an unset one
  std::string root;                                       // stands before /usr
};
ATTILE_API const SearchedMachine& this_machine();

// $CUDA_HOME, $CUDA_PATH, $CONDA_PREFIX, /usr/local/cuda, as far as set; need not exist.
ATTILE_API std::vector<std::string> toolkit_folders(const SearchedMachine& machine);

// Folders of Python packages that exist: of $VIRTUAL_ENV, of $CONDA_PREFIX, of the user (~/.local), of /usr, of
// /usr/local; newest Python first.
ATTILE_API std::vector<std::string> python_folders(const SearchedMachine& machine);

// Folders of $PATH.
std::vector<std::string> path_folders(const SearchedMachine& machine);

// Names in a folder that begin with `prefix`, in natural order from the last ("python3.12" before "python3.9"); none
// when the folder cannot be read.
std::vector<std::string> names_beginning(const std::string& folder, const std::string& prefix);

// The value of a variable, or an empty text.
std::string value_of(const SearchedMachine& machine, const char* name);

ATTILE_API bool is_file(const std::string& path);
bool is_folder(const std::string& path);

// Appends what is not there yet.
void add_new(std::vector<std::string>& list, std::string item);

}  // namespace v1
}  // namespace attile
