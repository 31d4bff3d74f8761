// The choice of the instruction-set variant. RINGLINE_BEST_ISA, when set, is what the machine must choose:
// test runs on emulated processors know it.
#include <algorithm>
#include <stdexcept>

#include "core/engine_isa.hpp"
#include "tests/matmul_fixture.hpp"

namespace ringline::test {
namespace {

std::string refusal(std::string_view isa) {
  try {
    matmul_kernels(isa);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

void portable_is_the_last_resort(const std::vector<std::string>& names) {
  require(!names.empty() && names.back() == "portable", "portable is usable everywhere, and the last choice");
  require(std::count(names.begin(), names.end(), names.front()) == 1, "a variant is listed once");
}

void every_variant_is_complete(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    require(matmul_kernels(name).matmul != nullptr, name + ": matrix products");
    require(engine_kernels(name).attend != nullptr, name + ": attention");
  }
}

void the_best_is_chosen(const std::vector<std::string>& names) {
  require(&matmul_kernels("") == &matmul_kernels(names.front()), "no name means the best variant");
  const char* best = std::getenv("RINGLINE_BEST_ISA");
  if (best != nullptr) require(names.front() == best, names.front() + " instead of " + best);
}

void others_are_refused(const std::vector<std::string>& names) {
  const std::string message = refusal("sse9");
  require(message.find("'sse9'") != std::string::npos, "the refusal names the instruction set");
  for (const std::string& name : names)
    require(message.find(name) != std::string::npos, "the refusal names the choices");
}

}  // namespace

void run() {
  const std::vector<std::string> names = isa_names();
  portable_is_the_last_resort(names);
  every_variant_is_complete(names);
  the_best_is_chosen(names);
  others_are_refused(names);
  std::printf("best: %s\n", names.front().c_str());
}

}  // namespace ringline::test

int main() { ringline::test::run(); }
