#include "runtime/cuda_places.h"

#include <fmt/format.h>
#include <string.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>

#include "runtime/files.h"

namespace attile {
inline namespace v1 {
namespace {

void add_packages(std::vector<std::string>& list, const std::string& lib, std::initializer_list<const char*> kinds) {
  for (const std::string& python : names_beginning(lib, "python3"))
    for (const char* kind : kinds) {
      std::string folder = fmt::format("{}/{}/{}", lib, python, kind);
      if (is_folder(folder)) add_new(list, std::move(folder));
    }
}

}  // namespace

const SearchedMachine& this_machine() {
  static const auto* machine = new SearchedMachine{[](const char* name) { return std::getenv(name); }, ""};
  return *machine;
}

std::string value_of(const SearchedMachine& machine, const char* name) {
  const char* value = machine.variable(name);
  return value ? value : "";
}

bool is_file(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

bool is_folder(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

void add_new(std::vector<std::string>& list, std::string item) {
  if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(std::move(item));
}

std::vector<std::string> names_beginning(const std::string& folder, const std::string& prefix) {
  std::vector<std::string> names;
  list_folder(folder, names);
  std::erase_if(names, [&](const std::string& name) { return !name.starts_with(prefix); });
  std::sort(names.begin(), names.end(),
            [](const std::string& a, const std::string& b) { return ::strverscmp(a.c_str(), b.c_str()) > 0; });
  return names;
}

std::vector<std::string> toolkit_folders(const SearchedMachine& machine) {
  std::vector<std::string> folders;
  for (const char* name : {"CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"})
    if (std::string folder = value_of(machine, name); !folder.empty()) add_new(folders, std::move(folder));
  add_new(folders, machine.root + "/usr/local/cuda");
  return folders;
}

std::vector<std::string> python_folders(const SearchedMachine& machine) {
  std::vector<std::string> folders;
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (std::string prefix = value_of(machine, name); !prefix.empty())
      add_packages(folders, prefix + "/lib", {"site-packages"});
  if (std::string home = value_of(machine, "HOME"); !home.empty())
    add_packages(folders, home + "/.local/lib", {"site-packages"});
  add_packages(folders, machine.root + "/usr/lib", {"dist-packages"});
  add_packages(folders, machine.root + "/usr/local/lib", {"site-packages", "dist-packages"});
  return folders;
}

std::vector<std::string> path_folders(const SearchedMachine& machine) {
  std::vector<std::string> folders;
  std::string path = value_of(machine, "PATH");
  for (std::size_t begin = 0; begin <= path.size();) {
    std::size_t end = std::min(path.find(':', begin), path.size());
    if (end > begin) add_new(folders, path.substr(begin, end - begin));
    begin = end + 1;
  }
  return folders;
}

}  // namespace v1
}  // namespace attile
