// NVRTC for the emulated device: a kernel's text becomes a library of the host, by the compiler that built the tests,
// and the "cubin" is that library with the machine number of a GPU.
#include <elf.h>
#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/emulator/machine.h"

namespace {

namespace fs = std::filesystem;

struct Program {
  std::string text, log, cubin;
  std::vector<std::pair<std::string, std::string>> headers;  // name, text
};

// From one past an opening bracket or quote to its end.
std::size_t end_of_string(const std::string& text, std::size_t at) {
  for (; text[at] != '"'; ++at)
    if (text[at] == '\\') ++at;
  return at;
}
std::size_t end_of_brackets(const std::string& text, std::size_t at) {
  for (int depth = 1;; ++at) {
    if (text[at] == '"') at = end_of_string(text, at + 1);
    if (text[at] == '(' || text[at] == '[') ++depth;
    if ((text[at] == ')' || text[at] == ']') && --depth == 0) return at;
  }
}

// "mma.sync.aligned.m16n8k8.row.col" becomes a name; of braces around several statements, the last one's.
std::string instruction_name(std::string statement) {
  if (const auto body = statement.rfind("\\t"); body != std::string::npos && statement.find(".reg") != std::string::npos)
    statement = statement.substr(statement.rfind("\\t", body - 1) + 2);
  const auto special = statement.find("%%");  // a register that is no operand
  std::string name;
  const auto add = [&](const std::string& word) {
    for (const char c : word) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  };
  add(statement.substr(0, statement.find_first_of(" ;")));
  if (special != std::string::npos) add("_" + statement.substr(special + 2, statement.find(';', special) - special - 2));
  return name;
}

// asm("...": "=r"(a) : "r"(b), "n"(c) : "memory") becomes emulator::ptx::name(a, b, c).
std::string call_of_asm(const std::string& inside) {
  std::string statement, operands;
  std::size_t at = 0;
  int section = 0;
  while (at < inside.size()) {
    const char c = inside[at];
    if (c == '"') {
      const std::size_t end = end_of_string(inside, at + 1);
      if (section == 0) statement += inside.substr(at + 1, end - at - 1);
      at = end + 1;
    } else if (c == '(') {
      const std::size_t end = end_of_brackets(inside, at + 1);
      operands += (operands.empty() ? "" : ", ") + inside.substr(at + 1, end - at - 1);
      at = end + 1;
    } else {
      section += c == ':';
      ++at;
    }
  }
  return "emulator::ptx::" + instruction_name(statement) + "(" + operands + ")";
}

std::string for_the_host(const std::string& text) {
  static const std::regex dynamic("extern __shared__ [^;]*char (\\w+)\\[\\];"), statement("\\basm( volatile)?\\(");
  std::string out, rest = std::regex_replace(text, dynamic, "char* const $1 = emulator::dynamic_shared();");
  for (std::smatch found; std::regex_search(rest, found, statement);) {
    const auto begin = static_cast<std::size_t>(found.position() + found.length());
    const std::size_t end = end_of_brackets(rest, begin);
    out += found.prefix().str() + call_of_asm(rest.substr(begin, end - begin));
    rest = rest.substr(end + 1);
  }
  return out + rest;
}

// A launch has one argument by value; the engine passes its address.
std::string with_entries(const std::string& text, std::string& log) {
  static const std::regex kernel("__global__ void(?: __launch_bounds__\\([^)]*\\))? (\\w+)\\((?:const )?(?:__grid_constant__ )?(\\w+) \\w+\\)");
  std::string out = text;
  for (std::sregex_iterator it(text.begin(), text.end(), kernel), end; it != end; ++it) {
    const std::string name = (*it)[1], type = (*it)[2];
    out += "\nextern \"C\" void emulated_" + name + "(void** arguments) { " + name + "(*static_cast<const " + type + "*>(arguments[0])); }\n";
    log += "ptxas info    : Compiling entry function '" + name + "' for 'emulated'\n"
           "ptxas info    : Used 128 registers, used 1 barriers\n";
  }
  return out;
}

std::string read(const fs::path& path) {
  std::ostringstream all;
  all << std::ifstream(path, std::ios::binary).rdbuf();
  return all.str();
}
void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

bool compile(Program& p) {
  char pattern[] = "/tmp/attile_emulated_XXXXXX";
  if (!mkdtemp(pattern)) return false;
  const fs::path folder = pattern;
  for (const auto& [name, text] : p.headers) write(folder / name, for_the_host(text));
  std::string log;
  write(folder / "kernel.cpp", with_entries(for_the_host(p.text), log));
  const auto file = [&](const char* name) { return (folder / name).string(); };
  const std::string command = EMULATOR_COMPILE " -I" + folder.string() + " " + file("kernel.cpp") + " -o " + file("kernel.so") + " " EMULATOR_LIBRARY " > " + file("log") + " 2>&1";
  const bool done = std::system(command.c_str()) == 0;
  p.log = done ? log : read(folder / "log");
  if (done) p.cubin = emulator::as_cubin(read(folder / "kernel.so"));
  if (done || !std::getenv("EMULATOR_KEEP")) fs::remove_all(folder);
  return done;
}

int give(const std::string& text, char* to) {
  std::memcpy(to, text.data(), text.size());
  return 0;
}

}  // namespace

#define API extern "C" __attribute__((visibility("default"))) int

API nvrtcVersion(int* major, int* minor) {
  *major = 99, *minor = 0;
  return 0;
}
API nvrtcGetNumSupportedArchs(int* count) {
  *count = 1;
  return 0;
}
API nvrtcGetSupportedArchs(int* archs) {
  *archs = emulator::chip();
  return 0;
}
extern "C" __attribute__((visibility("default"))) const char* nvrtcGetErrorString(int) { return "the host's compiler refused"; }
API nvrtcCreateProgram(Program** program, const char* text, const char*, int count, const char* const* headers, const char* const* names) {
  *program = new Program{text, {}, {}, {}};
  for (int i = 0; i < count; ++i) (*program)->headers.emplace_back(names[i], headers[i]);
  return 0;
}
API nvrtcDestroyProgram(Program** program) {
  delete *program;
  *program = nullptr;
  return 0;
}
API nvrtcCompileProgram(Program* program, int, const char* const*) { return compile(*program) ? 0 : 6; }
API nvrtcGetProgramLogSize(Program* program, std::size_t* size) {
  *size = program->log.size();
  return 0;
}
API nvrtcGetProgramLog(Program* program, char* to) { return give(program->log, to); }
API nvrtcGetCUBINSize(Program* program, std::size_t* size) {
  *size = program->cubin.size();
  return 0;
}
API nvrtcGetCUBIN(Program* program, char* to) { return give(program->cubin, to); }
API nvrtcGetPTXSize(Program*, std::size_t* size) {
  *size = 0;
  return 0;
}
API nvrtcGetPTX(Program*, char*) { return 0; }
