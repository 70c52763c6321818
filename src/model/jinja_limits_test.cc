// A template is foreign bytes and so is what it works on: whatever they say, evaluation ends, in bounded memory and
// without using up the stack, with an error that names the limit.
#include <gtest/gtest.h>

#include <pthread.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

#include "model/chat_template.h"
#include "model/jinja_budget.h"
#include "model/jinja_value.h"

namespace myriad {
namespace {

using Json = nlohmann::ordered_json;

std::string repeated(std::string_view text, std::size_t times) {
  std::string out;
  for (std::size_t i = 0; i < times; ++i) out += text;
  return out;
}

Result<std::string> rendered(std::string_view text, const Json& variables = Json::object()) {
  MYRIAD_TRY(const ChatTemplate made, ChatTemplate::parse(text));
  return made.render(variables, Json::object(), {});
}

// On a thread with the stack that model/chat_template.h promises to be enough, and within seconds.
Result<std::string> on_a_small_stack(const std::string& text, const Json& variables = Json::object()) {
  struct Work {
    const std::string& text;
    const Json& variables;
    Result<std::string> result;
  } work{text, variables, std::string()};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
#if defined(__SANITIZE_ADDRESS__)
  pthread_attr_setstacksize(&attributes, std::size_t{16} << 20);  // its frames are larger
#else
  pthread_attr_setstacksize(&attributes, std::size_t{576} << 10);  // the rest is for the test's own frames
#endif
  pthread_t thread{};
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(pthread_create(
                &thread, &attributes,
                [](void* argument) -> void* {
                  auto& w = *static_cast<Work*>(argument);
                  w.result = rendered(w.text, w.variables);
                  return nullptr;
                },
                &work),
            0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(60)) << text.substr(0, 200);
  return std::move(work.result);
}

void expect_limit(const std::string& text, std::string_view said, const Json& variables = Json::object()) {
  const auto result = on_a_small_stack(text, variables);
  ASSERT_FALSE(result) << text.substr(0, 100) << " gave " << result->size() << " bytes";
  EXPECT_EQ(result.error().code, Code::limit) << text.substr(0, 100) << ": " << result.error().message;
  EXPECT_NE(result.error().message.find(said), std::string::npos) << result.error().message;
}

TEST(JinjaLimits, NestingOfASource) {
  const std::size_t deep = 20'000;
  const std::pair<std::string, std::string> brackets[] = {{"(", ")"},   {"[", "]"},  {"{'a': ", "}"},     {"-", ""},
                                                          {"not ", ""}, {"f(", ")"}, {"1 if ", " else 2"}};
  for (const auto& [open, close] : brackets) {
    expect_limit("{{ " + repeated(open, deep) + "1" + repeated(close, deep) + " }}", "nest");
  }
  expect_limit("{{ x" + repeated(".a", deep) + " }}", "nest");
  expect_limit("{{ x" + repeated("[0]", deep) + " }}", "nest");
  expect_limit("{{ x" + repeated("|trim", deep) + " }}", "nest");
  expect_limit("{{ x" + repeated("()", deep) + " }}", "nest");
  expect_limit("{{ " + repeated("1 if 1 else ", deep) + "1 }}", "nest");
  for (const char* tag : {"if 1", "for x in [1]", "set x", "filter trim", "macro f()", "call f()", "generation"}) {
    expect_limit(repeated(std::string("{% ") + tag + " %}", deep), "nest");
  }
  EXPECT_TRUE(on_a_small_stack("{{ " + repeated("(", 100) + "1" + repeated(")", 100) + " }}"));
}

TEST(JinjaLimits, LongSourcesThatNestNothingAreFine) {
  EXPECT_TRUE(on_a_small_stack("{{ 1" + repeated(" + 1", 10'000) + " }}"));
  EXPECT_TRUE(on_a_small_stack("{% if false %}" + repeated("{% elif false %}a", 5'000) + "{% endif %}"));
  EXPECT_TRUE(on_a_small_stack(repeated("{% if true %}{% endif %}", 5'000)));
}

TEST(JinjaLimits, SizeOfASource) {
  expect_limit(std::string(jinja::kMaxTemplateBytes + 1, 'a'), "bytes");
  expect_limit(repeated("{{1}}", jinja::kMaxSyntaxNodes + 1), "");
  EXPECT_TRUE(on_a_small_stack(std::string(jinja::kMaxTemplateBytes, 'a')));
}

TEST(JinjaLimits, Recursion) {
  expect_limit("{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}", "nest");
  expect_limit(
      "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{% for x in [1] %}{{ f() }}{% endfor %}"
      "{% endmacro %}{{ f() }}",
      "nest");
  expect_limit("{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{{ f() }}", "nest");
  expect_limit("{% macro f(a=f()) %}{% endmacro %}{{ f() }}", "nest");
}

TEST(JinjaLimits, StepsEndLoops) {
  const std::string loop = "{% for a in range(100000) %}", end = "{% endfor %}";
  expect_limit(loop + loop + loop + end + end + end, "");  // or the ranges fill the memory first
  // Two calls in each call: exponential if nothing counted them.
  expect_limit("{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}", "step");
  expect_limit("{% set ns = namespace(l=[1]) %}" + loop + loop + "{% if 1 in ns.l %}{% endif %}" + end + end, "step");
}

TEST(JinjaLimits, Memory) {
  const std::string doubling = "{% set ns = namespace(s='0123456789') %}{% for i in range(60) %}";
  expect_limit(doubling + "{% set ns.s = ns.s + ns.s %}{% endfor %}", "");
  expect_limit(doubling + "{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}", "");
  expect_limit(doubling + "{% set ns.s = [ns.s, ns.s] | join %}{% endfor %}", "");
  expect_limit(doubling + "{% set ns.s = ns.s | replace('0', ns.s) %}{% endfor %}", "");
  expect_limit(doubling + "{% set ns.s = '%s%s' | format(ns.s, ns.s) %}{% endfor %}", "");
  expect_limit(doubling + "{% set ns.s = ns.s.join([ns.s, ns.s]) %}{% endfor %}", "");
  expect_limit("{{ 'a' * 1000000000000 }}", "");
  expect_limit("{{ ([1] * 1000000000000) | length }}", "");
  expect_limit("{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}", "");
  expect_limit(
      "{% set ns = namespace(l=[]) %}{% for i in range(9000) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}"
      "{{ ns.l }}",
      "");
  expect_limit("{% set x = 'a' * 1000000 %}{% for i in range(100000) %}{{ x }}{% endfor %}", "");
  expect_limit("{{ range(100000000) | list }}", "");
}

// Each level prints the one below it twice: 2^60 characters, or one limit.
TEST(JinjaLimits, SharedValuesArePrintedInBounds) {
  const std::string grow =
      "{% set ns = namespace(v='x') %}{% for i in range(60) %}{% set ns.v = [ns.v, ns.v] %}{% endfor %}";
  for (const char* use : {"{{ ns.v }}", "{{ ns.v | tojson }}", "{{ ns.v | string | length }}"})
    expect_limit(grow + use, "");
  // Comparing with an equal twin is as much work.
  const std::string twin =
      "{% set nt = namespace(v='x') %}{% for i in range(60) %}{% set nt.v = [nt.v, nt.v] %}{% endfor %}";
  expect_limit(grow + twin + "{{ ns.v == nt.v }}", "");
}

TEST(JinjaLimits, ValuesThatContainThemselvesEnd) {
  const auto list = on_a_small_stack("{% set l = [] %}{% set _ = l.append(l) %}{{ l }}");
  if (!list) {
    EXPECT_EQ(list.error().code, Code::limit) << list.error().message;
  }
  expect_limit("{% set l = [] %}{% set _ = l.append(l) %}{{ l | tojson }}", "");
  const auto same = on_a_small_stack(
      "{% set l = [] %}{% set m = [] %}{% set _ = l.append(m) %}{% set _ = m.append(l) %}{{ l == m }}");
  ASSERT_FALSE(same);
  EXPECT_EQ(same.error().code, Code::limit);
}

TEST(JinjaLimits, DeepRequests) {
  Json deep = 1;
  for (int i = 0; i < 100'000; ++i) {
    Json next = Json::array();
    next.push_back(std::move(deep));
    deep = std::move(next);
  }
  Json variables = Json::object();
  variables["x"] = std::move(deep);
  expect_limit("{{ x }}", "nest", variables);
  expect_limit("{{ x | tojson }}", "nest", variables);
}

TEST(JinjaLimits, Numbers) {
  for (const char* text : {"{{ 9223372036854775807 + 1 }}", "{{ 2 ** 64 }}", "{{ -9223372036854775807 - 2 }}",
                           "{{ 9223372036854775807 * 2 }}", "{{ 10 ** 100000 }}"}) {
    const auto result = on_a_small_stack(text);
    ASSERT_FALSE(result) << text << " gave " << *result;
    EXPECT_EQ(result.error().code, Code::limit) << text << ": " << result.error().message;
  }
  for (const char* text : {"{{ '%1000000000d' % 1 }}", "{{ '%.1000000000f' % 1 }}", "{{ 'a' | indent(100000000000) }}",
                           "{{ 1 | tojson(indent=100000000) }}", "{{ 1.5 | round(1000000) }}"}) {
    EXPECT_FALSE(on_a_small_stack(text)) << text;
  }
}

TEST(JinjaLimits, SearchesAreLinear) {
  const Json long_text{{"x", std::string(1'000'000, 'a')}, {"y", std::string(500'000, 'a') + "b"}};
  for (const char* text :
       {"{{ y in x }}", "{{ x.find(y) }}", "{{ x.replace(y, '') | length }}", "{{ x.split(y) | length }}",
        "{{ x.count(y) }}", "{{ x.rfind(y) }}", "{{ x.rsplit(y, 1) | length }}", "{{ x.rstrip(y) | length }}"}) {
    const auto result = on_a_small_stack(text, long_text);
    if (!result) {
      EXPECT_EQ(result.error().code, Code::limit) << text << ": " << result.error().message;
    }
  }
}

TEST(JinjaLimits, MemoryIsGivenBack) {
  jinja::Heap heap(std::chrono::local_seconds{});
  for (int i = 0; i < 500; ++i) {  // twice what may live at a time
    const auto text = heap.text(std::string(1 << 20, 'a'), false);
    ASSERT_TRUE(text) << i << ": " << text.error().message;
  }
  EXPECT_LT(heap.budget().live_bytes(), std::size_t{1} << 20);
}

}  // namespace
}  // namespace myriad
