#include "cli/command.h"

int main(int argc, char** argv) { return attile::cli::run_command(argc, argv); }
