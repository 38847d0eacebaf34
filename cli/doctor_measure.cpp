// attile doctor --measure: what the tuner's model takes for granted of a device, measured and fitted.
#include <fmt/format.h>

#include "autotune/tuner.h"
#include "cli/command.h"
#include "cli/json.h"
#include "cli/tune.h"

namespace attile::cli {

int measure_device(const std::string& device, bool as_json) {
  const DeviceFacts facts = facts_of_flag(device);
  const std::string folder = result_folder();
  Constants c = measured_constants(facts);
  const Fit fit = fit_to_store(ResultStore(folder, facts.machine), c.form);
  if (fit.problems > 0) {
    c.effects = fit.effects;
    c.fitted = fmt::format("{} problems, {} candidates", fit.problems, fit.candidates);
  }
  const std::string fault = keep_constants(c, facts, folder);
  if (as_json) {
    const Json json = {{"device", facts.machine.text()},
                       {"values", c.values},
                       {"effects", c.effects},
                       {"fitted", c.fitted},
                       {"correlation_before", fit.correlation_before},
                       {"correlation_after", fit.correlation_after},
                       {"fault", fault}};
    fmt::print("{}\n", json_text(json));
    return fault.empty() ? good : failed;
  }
  fmt::print("device     {}\n", facts.machine.text());
  for (const auto& [name, value] : c.values) fmt::print("{:<26} {:.6g}\n", name, value);
  for (const auto& [name, value] : c.effects) fmt::print("time x {:.3f} with {}\n", value, name);
  if (fit.problems > 0)
    fmt::print(
        "fitted     to {}: mean rank correlation of model and measurement {:.2f} without effects, {:.2f} with them\n",
        c.fitted, fit.correlation_before, fit.correlation_after);
  else
    fmt::print("fitted     to nothing: no problem with enough candidates was tuned yet\n");
  if (!fault.empty()) fmt::print("not kept   {}\n", fault);
  return fault.empty() ? good : failed;
}

}  // namespace attile::cli
