// JSON as the command writes it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace attile::cli {

using Json = nlohmann::ordered_json;

// Indented; what is no UTF-8 is replaced.
inline std::string json_text(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace); }

}  // namespace attile::cli
