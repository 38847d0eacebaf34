#include <attile/attile.h>

#include <cstdio>

int main() {
  std::printf("%s\n", std::string(attile::to_string(attile::DType::bfloat16)).c_str());
}
