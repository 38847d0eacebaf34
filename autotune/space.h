// The candidates for a problem: the product of the choices that YAML files list, without what is not legal, each
// refusal with its reasons. The search sees fields and values only; what they mean is in SpaceRules.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "autotune/point.h"
#include "schedules/schedule_yaml.h"

namespace attile {
inline namespace v1 {

struct SpaceRules {
  // One spelling for points that mean the same.
  std::function<Point(const Point&)> canonical;
  // Every reason why a point cannot serve; empty if it can.
  std::function<std::vector<std::string>(const Point&)> reasons;
  // The seconds that the model expects; smaller is better.
  std::function<double(const Point&)> predicted;
  // The value of a field that a canonical point leaves out.
  Point initial;
};

struct Candidate {
  Point point;
  double predicted = 0;
  std::size_t rank = 0;  // by prediction, 0 first; equal ones in the order of the space
};
struct Rejection {
  Point point;
  std::vector<std::string> reasons;
};

struct Space {
  std::vector<Candidate> candidates;  // each point once, in the order of the choices
  std::vector<Rejection> rejected;
  Point initial;

  std::optional<std::size_t> find(const Point& point) const;
  // Candidates by rank.
  std::vector<std::size_t> ranked() const;
};

// `also`: points beside the choices, such as the shipped schedule; they come first.
ATTILE_API Space make_space(std::span<const ScheduleSpace> choices, const SpaceRules& rules,
                            std::span<const Point> also = {});

// Candidates one step away: another value of one field, the next larger or smaller one of a number, or such a step of
// two numbers. In the order of the space.
ATTILE_API std::vector<std::size_t> neighbours(const Space& space, std::size_t of);

// "tile_rows 48: 12, stages …": how many points each reason refused, with one point of it, most frequent first. Numbers
// in reasons do not tell them apart.
struct RejectionGroup {
  std::string reason;  // of the first point
  Point example;
  std::size_t count = 0;
};
ATTILE_API std::vector<RejectionGroup> grouped(std::span<const Rejection> rejected);

}  // namespace v1
}  // namespace attile
